"""A fresh graph on each store, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.graph.engine import change_tracker, session_commands, step_runs
from ackwise.mew import Session
from tests.fresh_stores import Tables, sqlite_url
from tests.mew.prompt import Prompt
from tests.patience import PATIENCE
from tests.pg import FACTORIES


@pytest.fixture(autouse=True)
def patient_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets statements hold the writer for long, because a busy machine is slow. Tests of the limit set their own."""
    for module in (step_runs, session_commands, change_tracker):
        monkeypatch.setattr(module, "WRITER_SECONDS", PATIENCE)
    monkeypatch.setattr(step_runs, "GROUP_SECONDS", PATIENCE)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", *FACTORIES], ids=lambda name: name.replace("pg_url_factory", "postgres"))
def graph_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store, whose state at the end must pass the audit."""
    if request.param == "sqlite":
        url = sqlite_url(tmp_path / "graph.db")
    else:
        url = request.getfixturevalue(request.param)(Tables.GRAPH)
    yield url
    store = open_store(url)
    try:
        assert store.audit() == []
    finally:
        store.close()


@pytest.fixture
def session(graph_url: str, clock: ManualClock) -> Iterator[Session]:
    with Session(graph_url, clock=clock, blocked_for=0.0) as opened:
        yield opened


@pytest.fixture
def prompt(session: Session, clock: ManualClock) -> Prompt:
    return Prompt(session, clock)


@pytest.fixture
def lite(tmp_path: Path, clock: ManualClock) -> Iterator[Prompt]:
    """On SQLite only, for what is decided above the store."""
    with Session(sqlite_url(tmp_path / "lite.db"), clock=clock, blocked_for=0.0) as opened:
        yield Prompt(opened, clock)
