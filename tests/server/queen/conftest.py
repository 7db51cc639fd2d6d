"""A server with Queen's API, on each store and in each mode, and a desk to call it from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from ackwise.broker import duties
from ackwise.store.clock import ManualClock
from tests.pg import FACTORIES
from tests.server.queen.desk import Desk
from tests.server.running import Running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", *FACTORIES], ids=lambda name: name.replace("pg_url_factory", "postgres"))
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/queen.db?durability=normal"
    url: str = request.getfixturevalue(request.param)()
    return url


@pytest.fixture
def mode() -> str:
    """A module that shows both modes parametrises this."""
    return "seed"


@pytest.fixture
def quick_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes a little after it is due comes at once; ask for it before the server."""
    monkeypatch.setattr(duties, "SWEEP_EVERY", 0.05)
    monkeypatch.setattr(duties, "TIDY_EVERY", 0.05)


@pytest.fixture
def queen(store_url: str, clock: ManualClock, mode: str) -> Iterator[Desk]:
    with (
        Running(store_url, clock, queen_defaults=mode) as server,
        httpx2.Client(base_url=server.url, timeout=30) as http,
    ):
        yield Desk(http, clock, mode)
