"""A lock that runs out: items go back to the front of their own priority, whoever looks first, or nobody."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from ackwise.broker import duties
from ackwise.core import queries as q
from ackwise.store.clock import ManualClock
from tests.server.pushpop.desk import EXPIRED, Desk, taken
from tests.server.queen.desk import eventually
from tests.server.running import Running

LOOKS: dict[str, Callable[[Desk, str], object]] = {
    "plain pop elsewhere": lambda desk, _: desk.another().post("pop"),
    "push": lambda desk, _: desk.push(99, priority=9),
    "late ack": lambda desk, lock_id: desk.ack(lock_id),
    "late extend": lambda desk, lock_id: desk.post("extend-lock", {"lock_id": lock_id}),
    "late dead letter": lambda desk, lock_id: desk.post("deadletter", {"lock_id": lock_id}),
    "a stranger's ack": lambda desk, _: desk.ack("stranger"),
    "status": lambda desk, _: desk.look(),
    "metadata": lambda desk, _: desk.metadata(),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
@pytest.mark.parametrize("held", [True, False], ids=["with ack", "plain"])
def test_whatever_comes_first_the_items_are_back(desk: Desk, look: Callable[[Desk, str], object], held: bool) -> None:
    desk.push(1, 2, 3)
    desk.push(10, 11, priority=4)
    lock_id = desk.lock(count=4, ttl_seconds=5)["lock_id"]
    desk.push(4)
    desk.push(12, priority=4)
    desk.clock.advance(5)
    look(desk, lock_id)
    found = taken(desk.lock(count=100)) if held else desk.pop(count=100)
    assert found[:7] == [1, 2, 3, 4, 10, 11, 12]
    assert desk.look()["expired_locks"] == 1


def test_valid_before_the_instant_expired_at_it(desk: Desk) -> None:
    desk.push(1)
    held = desk.lock(ttl_seconds=7)
    desk.clock.set(round(held["lock_expires_at"] * 1e6) - 1)
    assert desk.post("pop").status == 423
    assert desk.look()["lock"]["seconds_left"] == 1e-6
    desk.clock.advance(1e-6)
    assert desk.ack(held["lock_id"]) == (410, EXPIRED)
    assert desk.pop() == [1]
    desk.push(2)
    other = desk.lock(ttl_seconds=7)
    desk.clock.set(round(other["lock_expires_at"] * 1e6) - 1)
    assert desk.ack(other["lock_id"]).status == 200


def test_a_batch_over_two_priorities_returns_in_place_and_order(desk: Desk) -> None:
    desk.push(1, 2, 3)
    desk.push(11, 12, 13, priority=2)
    held = desk.lock(count=5, ttl_seconds=5)
    assert taken(held) == [1, 2, 3, 11, 12]
    desk.clock.advance(5)
    assert desk.depth == {"0": 3, "2": 3}
    again = desk.lock(count=5)
    assert taken(again) == [1, 2, 3, 11, 12]
    assert desk.ack(again["lock_id"]).body["items_acknowledged"] == 5
    assert desk.drained() == [13]


def test_an_item_always_returns_however_often_its_lock_runs_out(desk: Desk) -> None:
    desk.push(1, 2)
    for _ in range(60):
        assert taken(desk.lock(ttl_seconds=1)) == [1]
        desk.clock.advance(1)
    for _ in range(25):
        assert taken(desk.lock(count=2, ttl_seconds=1)) == [1, 2]
        desk.clock.advance(1)
    assert desk.look()["expired_locks"] == 85
    assert desk.drained() == [1, 2]


def test_a_late_ack_never_disturbs_the_new_holder(desk: Desk) -> None:
    desk.push(1)
    old = desk.lock(ttl_seconds=5)
    desk.clock.advance(5)
    new = desk.lock(ttl_seconds=50)
    for verb in ("acknowledge", "extend-lock", "deadletter"):
        assert desk.post(verb, {"lock_id": old["lock_id"]}) == (410, EXPIRED)
    assert desk.look()["lock"] == {
        "lock_id": new["lock_id"], "expires_at": new["lock_expires_at"], "seconds_left": 50.0,
    }  # fmt: skip
    assert desk.ack(new["lock_id"]).body["items_acknowledged"] == 1
    assert desk.ack(old["lock_id"]) == (410, EXPIRED)


def test_more_locks_than_one_sweep_takes_shut_nobody_out(desk: Desk) -> None:
    queues = [desk.another() for _ in range(230)]
    for one in queues:
        one.push(1)
        one.lock(ttl_seconds=5)
    desk.clock.advance(5)
    assert [one.post("pop").status for one in reversed(queues)] == [200] * 230


def test_with_no_request_at_all(
    monkeypatch: pytest.MonkeyPatch, shared_store: str, http: httpx2.Client, clock: ManualClock
) -> None:
    """By the reaper: the store itself is looked at, which does not ask the clock."""
    monkeypatch.setattr(duties, "SWEEP_EVERY", 0.05)
    del http
    with Running(shared_store, clock) as quick, httpx2.Client(base_url=quick.url) as client:
        desk = Desk(client, clock)
        desk.push(1)
        desk.lock(ttl_seconds=5)
        store = quick.server._served.broker().store
        assert len(store.list_leases(q.ListLeases(queue=desk.queue))) == 1
        clock.advance(5)
        eventually(lambda: store.list_leases(q.ListLeases(queue=desk.queue)) == [])
        assert desk.depth == {"0": 1}
        assert desk.look()["expired_locks"] == 1
