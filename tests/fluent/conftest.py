"""A client on a fresh store, embedded and over HTTP, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ackwise.clock import ManualClock
from ackwise.fluent import Client
from tests.client.conftest import clock, store_url, url

__all__ = ["clock", "store_url", "url"]


@pytest.fixture
def client(url: str, clock: ManualClock) -> Iterator[Client]:
    with Client(url, clock=clock) as opened:
        yield opened
