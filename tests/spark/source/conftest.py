"""Queries on the source; they end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.spark.queue_harness import clock, harness, local_harness, local_url, timed_harness, timed_url, url
from tests.spark.source.asking import Query

__all__ = ["clock", "harness", "local_harness", "local_url", "query", "timed_harness", "timed_url", "url"]


@pytest.fixture
def query() -> Iterator[Callable[..., Query]]:
    """Make a query: `query(url, log, **options)`."""
    made: list[Query] = []

    def make(*args: Any, **options: Any) -> Query:
        made.append(Query(*args, **options))
        return made[-1]

    yield make
    for one in made:
        one.reader.stop()
