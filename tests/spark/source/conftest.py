"""Queries on the source; they end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.spark.source.asking import Query
from tests.spark.stores import clock, desk, local_desk, local_url, timed_desk, timed_url, url

__all__ = ["clock", "desk", "local_desk", "local_url", "query", "timed_desk", "timed_url", "url"]


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
