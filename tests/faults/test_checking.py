"""The fault runs can fail: whatever a store forgets or does twice is noticed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ackwise.clock import ManualClock
from ackwise.core.commands import ByLease, Claim, Push, Settle, Settlement
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.store.sqlite import SQLiteStore
from tests.faults.actors import body
from tests.faults.checking import Book, check, prepare
from tests.faults.ledger import Life

PUSHED = ["p0.a", "p0.b", "p0.c"]


def told(store: SQLiteStore, *more: list[Any]) -> Life:
    """A life that pushed three messages and acked the first, and then says more than that."""
    messages = [NewMessage(body(t), "p0", 0, t) for t in PUSHED]
    (receipts,) = store.transact([Push(queue="orders", messages=messages)])
    (claimed,) = store.transact([Claim(queue="orders", group="g1", most=1, lease=1_000_000)])
    store.transact([Settle(entries=[Settlement(selector=ByLease(claimed.lease_id), outcome=Outcome.ACK)])])
    ids = [[r.transaction_id, r.message_id] for r in receipts]
    life = Life()
    say(life, ["s", 1, "push", ["orders", PUSHED]], ["e", 1, [["pushed", "orders", ids]]])
    say(life, ["s", 2, "claim", ["orders/g1"]], ["e", 2, [["handed", "orders/g1", ["p0.a"]]]])
    say(life, ["s", 3, "settle", ["orders/g1", [["ack", ["p0.a"]]]]], ["e", 3, [["acked", "orders/g1", ["p0.a"]]]])
    say(life, *more)
    life.end()
    return life


def say(life: Life, *lines: list[Any]) -> None:
    life.hear("".join(json.dumps(line) + "\n" for line in lines).encode())


LIES: dict[str, list[list[Any]]] = {
    "lost: ": [["s", 9, "push", ["orders", ["p0.x"]]], ["e", 9, [["pushed", "orders", [["p0.x", "none"]]]]]],
    "acked, but delivered again": [["s", 9, "x", []], ["e", 9, [["acked", "orders/g1", ["p0.b"]]]]],
    "but no dead letter": [["s", 9, "x", []], ["e", 9, [["dead", "orders/g1", ["p0.b"]]]]],
    "handed out after it was settled": [["s", 9, "x", []], ["e", 9, [["handed", "orders/g1", ["p0.a"]]]]],
    "two message ids": [["s", 9, "x", []], ["e", 9, [["pushed", "orders", [["p0.a", "other"]]]]]],
    "the worker says": [["crash", "KeyError()"]],
}


@pytest.fixture
def store(tmp_path: Path) -> SQLiteStore:
    return SQLiteStore(f"sqlite:///{tmp_path}/queues.db?durability=normal", clock=ManualClock())


def checked(store: SQLiteStore, life: Life) -> list[str]:
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(3600)
    return check(store, [life], Book(), random.Random(1))


def test_store_that_keeps_its_promises_passes(store: SQLiteStore) -> None:
    prepare(store)
    assert checked(store, told(store)) == []


@pytest.mark.parametrize("what", LIES)
def test_checker_finds_an_answer_that_the_store_contradicts(store: SQLiteStore, what: str) -> None:
    prepare(store)
    assert any(what in problem for problem in checked(store, told(store, *LIES[what])))


def test_message_that_vanished_is_noticed(store: SQLiteStore) -> None:
    prepare(store)
    life = told(store)
    store.transact([Claim(queue="orders", group="g1", most=1, auto_ack=True)])
    assert any("pushed, but gone" in problem for problem in checked(store, life))


def test_half_a_transaction_is_noticed(store: SQLiteStore) -> None:
    prepare(store)
    life = told(store, ["s", 9, "move", ["orders/move", ["p0.a"], ["p0.a>"]]])
    store.transact([Claim(queue="orders", group="move", most=1, auto_ack=True)])
    assert any("half a transaction" in problem for problem in checked(store, life))
