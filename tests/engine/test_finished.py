"""When a lease is finished: whatever is settled, given back, lost or dropped, and in whatever order."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.answers import Extended
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.validation import MICROS
from tests.engine.store_harness import Delivery, Hand, StoreHarness, entry

outcomes = st.sampled_from(["ack", "ack", "retry", "reject", "release"])
ways = st.sampled_from(["delivery", "id", "range"])
settlements = st.lists(st.tuples(st.integers(0, 5), ways, outcomes), min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("settle"), settlements, st.booleans()),
        st.tuples(st.just("settle"), settlements, st.booleans()),
        st.tuples(st.just("whole"), outcomes),
        st.tuples(st.just("others"), st.booleans()),
        st.tuples(st.just("time"), st.sampled_from([1, 5, 100]), st.booleans()),
        st.tuples(st.just("seek"), st.sampled_from(["a", "b"])),
    ),
    max_size=7,
)
SECONDS = 10
Place = tuple[str, int]


class Watched:
    """One lease, and the visible state of its messages after each step."""

    def __init__(self, harness: StoreHarness, queue: str, hand: Hand) -> None:
        self.harness, self.queue, self.hand = harness, queue, hand
        self.held = {place(one) for one in hand.deliveries}
        self.acked: set[Place] = set()
        self.died: set[Place] = set()
        self.went_back: set[Place] = set()
        self.moved = False
        """A seek hides what became of messages."""
        self.deadline = harness.clock.now() + SECONDS * MICROS

    @property
    def over(self) -> bool:
        return self.deadline <= self.harness.clock.now()

    def look(self) -> None:
        if self.over:
            self.went_back |= self.held
        for one in self.harness.store.ask(q.Browse(queue=self.queue, group=QUEUE_MODE)):
            here = (one.partition, one.message.seq)
            if here in self.held and one.state != "leased":
                self.held.remove(here)
                self.into(one.state).add(here)

    def into(self, state: str | None) -> set[Place]:
        """Where a message went."""
        if self.over or state not in ("acked", "dead", "dropped"):
            return self.went_back
        return self.acked if state == "acked" else self.died

    def extend(self) -> str | None:
        answer: Extended = self.harness.do(c.Extend(lease_id=self.hand.lease_id, lease=SECONDS * MICROS))
        if answer.deadline is not None:
            self.deadline = answer.deadline
        return None if answer.verdict is None else answer.verdict.value

    def check(self) -> None:
        live = self.held and not self.over
        expected = None if live else "stale" if self.held or self.went_back else "already"
        assert (self.extend(), self.extend()) == (expected, expected)
        if not self.moved:
            ended = [one for one in self.hand.deliveries if place(one) in self.acked | self.died]
            answers = self.harness.settle(*map(entry, ended))
            assert [a.verdict for a in answers] == ["already"] * len(ended)
            assert [a.unacked for a in answers] == [place(one) in self.died for one in ended]


def place(one: Delivery) -> Place:
    return one.partition, one.seq


def named(one: Delivery, way: str) -> c.Selector:
    match way:
        case "delivery":
            return c.ByDelivery(one.id)
        case "id":
            return c.ByTransaction(one.partition_id, one.transaction_id, lease_id=one.lease_id)
        case _:
            return c.ByRange(one.lease_id, one.lane, one.seq, one.seq + 2)


def walk(harness: StoreHarness, queue: str, plan: list[tuple[Any, ...]], *, most: int) -> None:
    """`most` settlements are in a call."""
    for partition in ("a", "b"):
        harness.number(3, queue=queue, partition=partition)
    watched = Watched(harness, queue, hand := harness.claim(queue=queue, seconds=SECONDS))
    assert len(hand) == 6
    for step in plan:
        match step:
            case "settle", entries, atomic:
                chosen = [entry(named(hand.deliveries[at], way), outcome) for at, way, outcome in entries[:most]]
                harness.settle(*chosen, atomic=atomic)
            case "whole", outcome:
                harness.settle(entry(c.ByLease(hand.lease_id), outcome))
            case "others", finish:
                if (other := harness.claim(queue=queue, seconds=1)).deliveries and finish:
                    harness.settle(entry(c.ByLease(other.lease_id)))
            case "time", seconds, sweeps:
                harness.advance(seconds)
                if sweeps:
                    harness.sweep()
            case "seek", partition:
                harness.do(c.SeekGroup(queue=queue, group=QUEUE_MODE, to="end", partition=partition))
                watched.moved = True
        watched.look()
        watched.check()


@pytest.mark.slow
@pytest.mark.parametrize("dead_letters", [True, False])
@pytest.mark.parametrize("on_failure", ["rewind", "skip"])
def test_lease_is_finished_when_nothing_of_it_went_back(
    harness: StoreHarness, on_failure: str, dead_letters: bool
) -> None:
    numbers = count()

    @settings(
        max_examples=30,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(plan=steps)
    def run(plan: list[tuple[Any, ...]]) -> None:
        queue = f"q{next(numbers)}"
        harness.configure(
            queue, on_failure=on_failure, retry_limit=2, dead_letters=dead_letters, exclusivity="partition"
        )
        walk(harness, queue, plan, most=4 if dead_letters else 1)

    run()
