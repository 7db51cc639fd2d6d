"""Random operations and clock jumps against a model: pushed = acked + popped + queued + locked + dead-lettered."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.protocols.pushpop.pushpop_api import EXPIRED, INVALID, LOCKED, NOT_FOUND, PushPopApi, Reply

ttls = st.sampled_from([1, 3, 10])
counts = st.integers(1, 6)
priorities = st.sampled_from([0, 0, 1, 7])
MICROS = 1_000_000


def items_of(lock: Any) -> list[tuple[int, int]]:
    return [(row["priority"], row["item"]["n"]) for row in lock["items_with_priority"]]


class Lock:
    def __init__(self, lock_id: str, items: list[tuple[int, int]], deadline: int, *, shared: bool) -> None:
        self.id, self.items, self.deadline, self.shared = lock_id, items, deadline, shared


class Machine(RuleBasedStateMachine):
    """The model keeps items as (priority, number): numbers rise, so their order is the queue's."""

    def __init__(self, pushpop: PushPopApi) -> None:
        super().__init__()
        self.pushpop = pushpop.another()
        self.clock = pushpop.clock
        self.waiting: list[tuple[int, int]] = []
        self.locks: dict[str, Lock] = {}
        self.known: dict[str, str] = {}
        self.pushed = self.acked = self.popped = self.dead = self.expired = 0

    def expire(self) -> None:
        for lock in list(self.locks.values()):
            if lock.deadline <= self.clock.now():
                self.waiting = sorted(self.waiting + lock.items)
                self.known[lock.id] = "expired"
                self.expired += 1
                del self.locks[lock.id]

    def take(self, count: int) -> list[tuple[int, int]]:
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    @rule(batch=st.lists(priorities, min_size=1, max_size=5), listed=st.booleans())
    def push(self, batch: list[int], listed: bool) -> None:
        items = [(priority, self.pushed + at) for at, priority in enumerate(batch)]
        bodies = [{"item": {"n": n}, "priority": priority} for priority, n in items]
        if listed:
            assert self.pushpop.post("push", {"items": bodies}).body["items_pushed"] == len(items)
        else:
            assert [self.pushpop.post("push", body).status for body in bodies] == [200] * len(items)
        self.pushed += len(items)
        self.expire()
        self.waiting = sorted(self.waiting + items)

    @rule(count=counts, held=st.booleans(), competing=st.booleans(), ttl=ttls)
    def pop(self, count: int, held: bool, competing: bool, ttl: int) -> None:
        self.expire()
        answer = self.pushpop.post(
            "pop", count=count, require_ack=held, allow_competing_consumers=competing, ttl_seconds=ttl
        )
        in_the_way = [lock for lock in self.locks.values() if not (competing and lock.shared)]
        if in_the_way:
            deadlines = [lock.deadline / MICROS for lock in in_the_way]
            assert (answer.status, answer.body["message"]) == (423, LOCKED)
            assert answer.body["lock_expires_at"] in deadlines
            return
        taken = self.take(count)
        assert answer.status == 200
        assert answer.body["items"] == [{"n": n} for _, n in taken]
        if not held:
            self.popped += len(taken)
        elif taken:
            lock = Lock(answer.body["lock_id"], taken, self.clock.now() + ttl * MICROS, shared=competing)
            assert answer.body["lock_expires_at"] == lock.deadline / MICROS
            self.locks[lock.id] = lock
        else:
            assert answer.body["locked"] is False

    @rule(pick=st.integers(0, 10**6), verb=st.sampled_from(["acknowledge", "acknowledge", "deadletter", "extend-lock"]))
    def use_a_lock(self, pick: int, verb: str) -> None:
        self.expire()
        every = [*self.locks, *self.known, "never-given"]
        lock_id = every[pick % len(every)]
        answer = self.pushpop.post(verb, {"lock_id": lock_id, "additional_ttl_seconds": 2})
        lock = self.locks.get(lock_id)
        if lock is None:
            assert answer == self.refusal(lock_id)
        elif verb == "extend-lock":
            lock.deadline += 2 * MICROS
            assert answer.body == {"lock_id": lock_id, "new_expires_at": lock.deadline / MICROS}
        else:
            assert answer.status == 200
            del self.locks[lock_id]
            self.known[lock_id] = "settled"
            if verb == "acknowledge":
                assert answer.body["items_acknowledged"] == len(lock.items)
                self.acked += len(lock.items)
            else:
                self.dead += len(lock.items)

    def refusal(self, lock_id: str) -> Reply:
        if self.known.get(lock_id) == "expired":
            return Reply(410, EXPIRED)
        return Reply(400, INVALID) if self.locks else Reply(404, NOT_FOUND)

    @rule(seconds=st.sampled_from([0.001, 0.5, 1, 1.5, 3, 20]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def time_stops_at_a_deadline(self) -> None:
        if self.locks:
            self.clock.set(max(self.clock.now(), min(lock.deadline for lock in self.locks.values())))

    @invariant()
    def nothing_is_lost(self) -> None:
        self.expire()
        shown: dict[str, Any] = self.pushpop.metadata()
        locks = shown.pop("_active_locks", [shown["_active_lock"]] if "_active_lock" in shown else [])
        shown.pop("_active_lock", None)
        counted: dict[str, int] = {}
        for priority, _ in self.waiting:
            counted[str(priority)] = counted.get(str(priority), 0) + 1
        assert shown == counted
        held = {
            one["lock_id"]: [(row["priority"], row["item"]["n"]) for row in one["items_with_priority"]] for one in locks
        }
        assert held == {lock.id: lock.items for lock in self.locks.values()}
        queued, locked = sum(shown.values()), sum(map(len, held.values()))
        assert self.pushed == self.acked + self.popped + queued + locked + self.dead
        assert self.pushpop.look()["expired_locks"] == self.expired

    def teardown(self) -> None:
        self.clock.advance(1000)
        self.expire()
        assert self.pushpop.drained() == [n for _, n in self.waiting]


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_random_calls_lose_no_item(pushpop: PushPopApi) -> None:
    how = settings(
        max_examples=25,
        stateful_step_count=30,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    make: Any = partial(Machine, pushpop)
    run_state_machine_as_test(make, settings=how)
