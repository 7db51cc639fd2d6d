"""A server with Queen's API, on each store and in each mode, and a client of that API."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from ackwise.broker import maintenance
from ackwise.clock import ManualClock
from tests.patience import PATIENCE
from tests.protocols.queen.queen_api import QueenApi
from tests.server.running import Running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store_url(any_store: str) -> str:
    return any_store


@pytest.fixture
def mode() -> str:
    """A module that shows both modes parametrises this."""
    return "seed"


@pytest.fixture
def quick_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes a little after it is due comes at once; ask for it before the server."""
    monkeypatch.setattr(maintenance, "SWEEP_EVERY", 0.05)
    monkeypatch.setattr(maintenance, "TIDY_EVERY", 0.05)


@pytest.fixture
def queen(store_url: str, clock: ManualClock, mode: str) -> Iterator[QueenApi]:
    with (
        Running(store_url, clock, queen_defaults=mode) as server,
        httpx2.Client(base_url=server.url, timeout=PATIENCE) as http,
    ):
        yield QueenApi(http, clock, mode)
