"""Health pages: they report the broker's last write and touch no store."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ackwise.broker import async_broker, write_health
from ackwise.core.commands import Beat, Command, Sweep
from ackwise.core.queen_queries import GetMaintenance
from ackwise.core.queries import ListHooks, Query
from ackwise.store.sqlite import SQLiteStore
from tests.faults.power import Journal, PowerVFS
from tests.patience import PATIENCE
from tests.server.process import ServerProcess
from tests.server.running import Running

_names = itertools.count(1)


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def server(tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(async_broker, "BEAT_EVERY", 0.02)
    name = f"health-{next(_names)}"
    vfs = PowerVFS(name, journal)
    url = f"sqlite:///{tmp_path}/queues.db"
    with Running(url, opened=SQLiteStore(url, vfs=name)) as made:
        yield made
    vfs.unregister()


def page(server: Running | ServerProcess, path: str = "/readyz") -> tuple[int, dict[str, Any]]:
    answer = httpx2.get(f"{server.url}{path}", timeout=PATIENCE)
    return answer.status_code, answer.json()


def until(server: Running, wanted: Callable[[int, dict[str, Any]], bool]) -> tuple[int, dict[str, Any]]:
    end = time.monotonic() + 30
    while not wanted(*(seen := page(server))):
        assert time.monotonic() < end, seen
        time.sleep(0.005)
    return seen


def test_readyz_after_the_start_says_when_it_wrote(any_store: str) -> None:
    with Running(any_store) as server:
        code, body = page(server)
        assert (code, body["status"]) == (200, "ready")
        assert 0 <= body["last_write_seconds_ago"] < 10 * write_health.BEAT_EVERY
        code, body = page(server, "/health")
        assert (code, body["status"], body["database"]) == (200, "healthy", "connected")


def test_readyz_on_a_full_disk_is_503_with_the_reason(server: Running, journal: Journal) -> None:
    journal.room = 0
    _, body = until(server, lambda code, _: code == 503)
    assert body["code"] == "store_full"
    assert "the last write failed" in body["error"]
    assert page(server, "/health")[0] == 503
    assert page(server, "/livez")[0] == 200
    journal.room = None
    until(server, lambda code, _: code == 200)


def test_readyz_after_a_failed_fsync_is_503(server: Running, journal: Journal) -> None:
    journal.failing_syncs = 1 << 30
    _, body = until(server, lambda code, _: code == 503)
    assert body["code"] == "outcome_unknown"
    journal.failing_syncs = 0
    until(server, lambda code, _: code == 200)


def test_readyz_while_the_writer_hangs_answers_overdue(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = server.server.runtime.broker()
    store = broker.store
    assert isinstance(store, SQLiteStore)
    monkeypatch.setattr(write_health, "SILENT_AFTER", 0.2)
    with store._writer.lock:
        _, body = until(server, lambda code, _: code == 503)
        assert body["code"] == "write_overdue"
        assert body["last_write_seconds_ago"] > 0.2
        assert page(server, "/livez")[0] == 200
    until(server, lambda code, _: code == 200)


def test_readyz_writes_nothing_itself(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    store = server.server.runtime.broker().store
    assert isinstance(store, SQLiteStore)
    looks: list[object] = []
    writes: set[type] = set()
    prepare, ask = store.prepare, store.ask

    def looked(query: Query) -> Any:
        # The server itself looks at Queen's maintenance switches and at hooks.
        if not isinstance(query, GetMaintenance | ListHooks):
            looks.append(query)
        return ask(query)

    def noted(commands: Sequence[Command], shard: int = 0) -> Any:
        writes.update(map(type, commands))
        return prepare(commands, shard)

    monkeypatch.setattr(store, "prepare", noted)
    monkeypatch.setattr(store, "ask", looked)
    assert [page(server, path)[0] for path in ("/readyz", "/health", "/livez")] == [200] * 3
    assert looks == []
    assert writes <= {Beat, Sweep}
