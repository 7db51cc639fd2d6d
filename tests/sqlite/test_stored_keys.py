"""A reader finds transaction ids in the tables alone, wherever the writer has put them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackwise.clock import ManualClock
from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import MessageNotFound
from ackwise.core.messages import PlainBatch
from ackwise.store.sqlite import SQLiteStore
from ackwise.store.sqlite.dedupe import SHELF
from tests.sqlite.support import open_store, push, rows

SMALL = 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queues.db"


def found(store: SQLiteStore, txids: list[str]) -> list[bytes]:
    (partition,) = store.ask(q.ListPartitions(queue="q"))
    return [
        store.ask(q.FindMessage(partition_id=partition.partition_id, transaction_id=txid)).message.payload
        for txid in txids
    ]


def test_key_is_found_in_every_generation_and_shelf(path: Path) -> None:
    store = open_store(path, dedupe_generation=SMALL)
    txids = [f"t{number}" for number in range(SMALL * SHELF * 2 + 6)]
    for txid in txids:
        push(store, txid, payload=txid.encode())
    shelves = {gen // SHELF for (gen,) in rows(path, "SELECT gen FROM dedupe_gen")}
    assert len(shelves) >= 2
    assert rows(path, "SELECT count(*) FROM dedupe_fresh")[0][0] >= 1
    assert found(store, txids) == [txid.encode() for txid in txids]
    with pytest.raises(MessageNotFound):
        found(store, ["never"])
    store.close()


def test_key_is_found_in_the_middle_of_a_batch(path: Path) -> None:
    store = open_store(path)
    batch = PlainBatch([b"%d" % number for number in range(700)], [f"t{number}" for number in range(700)])
    store.transact([c.Push(queue="q", messages=batch)])
    assert found(store, ["t0", "t350", "t699"]) == [b"0", b"350", b"699"]
    store.close()


def test_key_is_found_by_a_store_that_never_writes(path: Path) -> None:
    clock = ManualClock()
    writer, reader = open_store(path, clock), open_store(path, clock)
    push(writer, "a", payload=b"1")
    assert found(reader, ["a"]) == [b"1"]
    writer.close()
    reader.close()
