"""An expired lock: its items return to the front of their priority, before any call and without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx2
import pytest

from ackwise.broker import maintenance
from ackwise.clock import ManualClock
from ackwise.core import queries as q
from ackwise.protocols.pushpop.vocabulary import LOCKED
from tests.protocols.pushpop.pushpop_api import EXPIRED, PushPopApi, taken
from tests.protocols.queen.queen_api import eventually
from tests.server.running import Running

LOOKS: dict[str, Callable[[PushPopApi, str], object]] = {
    "plain pop elsewhere": lambda pushpop, _: pushpop.another().post("pop"),
    "push": lambda pushpop, _: pushpop.push(99, priority=9),
    "late ack": lambda pushpop, lock_id: pushpop.ack(lock_id),
    "late extend": lambda pushpop, lock_id: pushpop.post("extend-lock", {"lock_id": lock_id}),
    "late dead letter": lambda pushpop, lock_id: pushpop.post("deadletter", {"lock_id": lock_id}),
    "a stranger's ack": lambda pushpop, _: pushpop.ack("stranger"),
    "status": lambda pushpop, _: pushpop.look(),
    "metadata": lambda pushpop, _: pushpop.metadata(),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS.keys())
@pytest.mark.parametrize("held", [True, False], ids=["with ack", "plain"])
def test_expired_items_are_back_after_any_first_call(
    pushpop: PushPopApi, look: Callable[[PushPopApi, str], object], held: bool
) -> None:
    pushpop.push(1, 2, 3)
    pushpop.push(10, 11, priority=4)
    lock_id = pushpop.lock(count=4, ttl_seconds=5)["lock_id"]
    pushpop.push(4)
    pushpop.push(12, priority=4)
    pushpop.clock.advance(5)
    look(pushpop, lock_id)
    found = taken(pushpop.lock(count=100)) if held else pushpop.pop(count=100)
    assert found[:7] == [1, 2, 3, 4, 10, 11, 12]
    assert pushpop.look()["expired_locks"] == 1


def test_valid_before_the_instant_expired_at_it(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    held = pushpop.lock(ttl_seconds=7)
    pushpop.clock.set(round(held["lock_expires_at"] * 1e6) - 1)
    assert pushpop.post("pop").status == 423
    assert pushpop.look()["lock"]["seconds_left"] == 1e-6
    pushpop.clock.advance(1e-6)
    assert pushpop.ack(held["lock_id"]) == (410, EXPIRED)
    assert pushpop.pop() == [1]
    pushpop.push(2)
    other = pushpop.lock(ttl_seconds=7)
    pushpop.clock.set(round(other["lock_expires_at"] * 1e6) - 1)
    assert pushpop.ack(other["lock_id"]).status == 200


def test_batch_over_two_priorities_returns_in_place_and_order(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2, 3)
    pushpop.push(11, 12, 13, priority=2)
    held = pushpop.lock(count=5, ttl_seconds=5)
    assert taken(held) == [1, 2, 3, 11, 12]
    pushpop.clock.advance(5)
    assert pushpop.depth == {"0": 3, "2": 3}
    again = pushpop.lock(count=5)
    assert taken(again) == [1, 2, 3, 11, 12]
    assert pushpop.ack(again["lock_id"]).body["items_acknowledged"] == 5
    assert pushpop.drained() == [13]


def test_item_always_returns_however_often_its_lock_runs_out(pushpop: PushPopApi) -> None:
    pushpop.push(1, 2)
    for _ in range(60):
        assert taken(pushpop.lock(ttl_seconds=1)) == [1]
        pushpop.clock.advance(1)
    for _ in range(25):
        assert taken(pushpop.lock(count=2, ttl_seconds=1)) == [1, 2]
        pushpop.clock.advance(1)
    assert pushpop.look()["expired_locks"] == 85
    assert pushpop.drained() == [1, 2]


def test_late_ack_never_disturbs_the_new_holder(pushpop: PushPopApi) -> None:
    pushpop.push(1)
    old = pushpop.lock(ttl_seconds=5)
    pushpop.clock.advance(5)
    new = pushpop.lock(ttl_seconds=50)
    for verb in ("acknowledge", "extend-lock", "deadletter"):
        assert pushpop.post(verb, {"lock_id": old["lock_id"]}) == (410, EXPIRED)
    assert pushpop.look()["lock"] == {
        "lock_id": new["lock_id"], "expires_at": new["lock_expires_at"], "seconds_left": 50.0,
    }  # fmt: skip
    assert pushpop.ack(new["lock_id"]).body["items_acknowledged"] == 1
    assert pushpop.ack(old["lock_id"]) == (410, EXPIRED)


def test_locks_beyond_one_sweep_block_no_pop(pushpop: PushPopApi) -> None:
    queues = [pushpop.another() for _ in range(230)]
    for one in queues:
        one.push(1)
        one.lock(ttl_seconds=5)
    pushpop.clock.advance(5)
    assert [one.post("pop").status for one in reversed(queues)] == [200] * 230


def test_reaper_returns_expired_items_without_a_request(
    monkeypatch: pytest.MonkeyPatch, shared_store: str, http: httpx2.Client, clock: ManualClock
) -> None:
    """By the reaper: the store itself is looked at, which does not ask the clock."""
    monkeypatch.setattr(maintenance, "SWEEP_EVERY", 0.05)
    del http
    with Running(shared_store, clock) as quick, httpx2.Client(base_url=quick.url) as client:
        pushpop = PushPopApi(client, clock)
        pushpop.push(1)
        pushpop.lock(ttl_seconds=5)
        store = quick.server.runtime.broker().store
        assert len(store.ask(q.ListLeases(queue=pushpop.queue))) == 1
        clock.advance(5)
        eventually(lambda: store.ask(q.ListLeases(queue=pushpop.queue)) == [])
        assert pushpop.depth == {"0": 1}
        assert pushpop.look()["expired_locks"] == 1


@pytest.fixture(params=[-3600, 86400])
def step(request: pytest.FixtureRequest, pushpop: PushPopApi) -> Iterator[int]:
    """A step of the wall clock, taken back for the other tests of this server."""
    seconds: int = request.param
    yield seconds
    pushpop.clock.step_wall(-seconds)


def test_lock_under_a_clock_step_keeps_its_time(pushpop: PushPopApi, step: int) -> None:
    pushpop.push(1)
    held = pushpop.lock(ttl_seconds=60)
    assert held["lock_expires_at"] == pushpop.now + 60
    pushpop.clock.step_wall(step)
    expires_at = pushpop.now + step + 60
    assert pushpop.post("pop") == (423, {"message": LOCKED, "lock_expires_at": expires_at})
    lock = {"lock_id": held["lock_id"], "expires_at": expires_at, "seconds_left": 60.0}
    assert pushpop.look()["lock"] == lock
    extended = pushpop.post("extend-lock", {"lock_id": held["lock_id"], "additional_ttl_seconds": 30})
    assert extended.body["new_expires_at"] == expires_at + 30
    pushpop.clock.advance(90)
    assert pushpop.pop() == [1]
