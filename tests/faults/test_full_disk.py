"""A full disk and a disk that fails to sync: typed errors, nothing changed or said to be unknown, and on it goes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ackwise.broker import Broker
from ackwise.core.commands import Claim, Push
from ackwise.core.errors import AckwiseError, OutcomeUnknown, StoreFull, StoreUnavailable
from ackwise.core.messages import NewMessage
from ackwise.core.queries import Browse, ListGroups
from ackwise.store.sqlite import SQLiteStore
from tests.faults.power import Journal, PowerVFS

_names = itertools.count(1)


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def vfs(journal: Journal) -> Iterator[str]:
    name = f"full-{next(_names)}"
    made = PowerVFS(name, journal)
    yield name
    made.unregister()


@pytest.fixture
def store(tmp_path: Path, vfs: str) -> Iterator[SQLiteStore]:
    made = SQLiteStore(f"sqlite:///{tmp_path}/queues.db", vfs=vfs)
    made.transact([push("first")])
    yield made
    made.close()


def push(txid: str, size: int = 10) -> Push:
    return Push(queue="q", messages=[NewMessage(b"x" * size, transaction_id=txid)])


def txids(store: SQLiteStore) -> list[str]:
    return [b.message.transaction_id for b in store.ask(Browse(queue="q", limit=10_000))]


def status(store: SQLiteStore, txid: str) -> str:
    (receipts,) = store.transact([push(txid)])
    return str(receipts[0].status)


@pytest.mark.parametrize("room", [0, 100, 5_000, 20_000, 40_000])
def test_full_disk_changes_nothing(store: SQLiteStore, journal: Journal, room: int) -> None:
    journal.room = room
    with pytest.raises(StoreFull, match="Free some space"):
        store.transact([push("big", 100_000)])
    with pytest.raises(StoreFull):
        store.transact([push("big", 100_000)])
    assert txids(store) == ["first"]
    journal.room = None
    assert status(store, "big") == "queued"
    assert status(store, "big") == "duplicate"
    assert status(store, "first") == "duplicate"
    assert txids(store) == ["first", "big"]
    assert store.audit() == []


@pytest.mark.parametrize("room", range(0, 60_000, 4_000))
def test_claims_on_a_full_disk_take_nothing(store: SQLiteStore, journal: Journal, room: int) -> None:
    """Whatever turn it is that no longer fits, it happens as a whole or not at all."""
    journal.room = room
    answers = [store.transact([push(f"t{number}", 1000), Claim(queue="q", most=1)]) for number in range(30)]
    journal.room = None
    done = [f"t{number}" for number, (pushed, _) in enumerate(answers) if not isinstance(pushed, AckwiseError)]
    assert len(done) < 30
    assert all(isinstance(a, StoreFull) for pair in answers for a in pair if isinstance(a, AckwiseError))
    assert txids(store) == ["first", *done]
    granted = sum(claimed.count for _, claimed in answers if not isinstance(claimed, AckwiseError))
    assert sum(g.held for g in store.ask(ListGroups(queue="q"))) == granted
    assert store.audit() == []


def test_caller_too_large_for_disk_fails_no_other(store: SQLiteStore, journal: Journal) -> None:
    """The turn that was too large is tried again command by command."""
    small = [push(f"small{i}") for i in range(5)]
    journal.room = 200_000
    answers = store.transact([small[0], small[1], push("huge", 1_000_000), *small[2:]])
    assert isinstance(answers[2], StoreFull)
    assert [isinstance(a, AckwiseError) for a in answers] == [False, False, True, False, False, False]
    journal.room = None
    assert sorted(txids(store)) == ["first", *(f"small{i}" for i in range(5))]


def test_full_database_by_page_count(tmp_path: Path) -> None:
    store = SQLiteStore(f"sqlite:///{tmp_path}/queues.db")
    store.transact([push("first")])
    pages = store._writer.connection.pragma("page_count")
    store._writer.connection.execute(f"PRAGMA max_page_count = {pages + 20}").fetchall()
    broker = Broker(store)
    with ThreadPoolExecutor(4) as pool:
        big = pool.submit(broker.send, push("big", 1_000_000))
        small = [pool.submit(broker.send, push(f"small{i}")) for i in range(20)]
        assert isinstance(big.exception(), StoreFull)
        assert [future.exception() for future in small] == [None] * 20
    store._writer.connection.execute("PRAGMA max_page_count = 1000000").fetchall()
    assert broker.send(push("big", 1_000_000))[0].status == "queued"
    assert len(txids(store)) == 22
    assert store.audit() == []
    broker.close()


def test_failed_sync_leaves_outcome_unknown_and_store_alive(store: SQLiteStore, journal: Journal) -> None:
    for number in range(3):
        journal.failing_syncs = 1
        with pytest.raises(OutcomeUnknown, match="Repeat the call"):
            store.transact([push(f"t{number}"), Claim(queue="q", most=1)])
        first, again = status(store, f"t{number}"), status(store, f"t{number}")
        assert first in ("queued", "duplicate")
        assert again == "duplicate"
    assert sorted(txids(store)) == ["first", "t0", "t1", "t2"]
    assert store.audit() == []


def test_disk_that_fails_for_a_while_does_not_close_the_store(store: SQLiteStore, journal: Journal) -> None:
    journal.failing_syncs = 5
    for _ in range(5):
        with pytest.raises(OutcomeUnknown):
            store.transact([push("t")])
    assert status(store, "t") in ("queued", "duplicate")
    assert txids(store).count("t") == 1


def test_store_that_cannot_be_reopened_at_once_goes_on_later(
    store: SQLiteStore, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise StoreUnavailable("not now")

    with monkeypatch.context() as patch:
        patch.setattr("ackwise.store.sqlite.writer.open_writer", refuses)
        journal.failing_syncs = 1
        with pytest.raises(OutcomeUnknown):
            store.transact([push("t")])
        with pytest.raises(StoreUnavailable, match="not now"):
            store.transact([push("t")])
        assert txids(store) == ["first"]
    assert status(store, "t") in ("queued", "duplicate")
    assert status(store, "t") == "duplicate"
