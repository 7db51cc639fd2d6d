"""The state table against the engine: each event moves a message as the table says, and no event moves it otherwise."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Literal

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.lifecycle import TRANSITIONS, Guard, LifecycleEvent, State, Transition, target
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.settlement import Verdict
from tests.engine.store_harness import Delivery, StoreHarness, entry

LEASE, DELAY, BACKOFF, AGE = 10_000, 1_000, 60, 20
"""Seconds of a lease, of a delay and of the backoff, and the age at which max wait and retention act."""
NO_LETTER = "019a3c51-6a00-7d21-9c44-0e5a77b1c001"
POLICIES: dict[Guard, dict[str, Any]] = {
    Guard.FINAL: {"retry_limit": 1},
    Guard.FINAL_DROPPED: {"retry_limit": 1, "dead_letters": False},
    Guard.DROPPED: {"dead_letters": False},
}
SETTLEMENTS = {
    LifecycleEvent.ACK: "ack",
    LifecycleEvent.RETRY: "retry",
    LifecycleEvent.REJECT: "reject",
    LifecycleEvent.RELEASE: "release",
}
numbers = count()


class OneMessage:
    """One message in a queue of its own, and what can happen to it."""

    def __init__(self, harness: StoreHarness, **policy: Any) -> None:
        self.harness = harness
        self.queue = f"q{next(numbers)}"
        self.delivery: Delivery | None = None
        harness.configure(self.queue, backoff={"kind": "fixed", "seconds": BACKOFF}, **policy)
        harness.claim(queue=self.queue)  # creates the group

    # states

    def reach(self, state: State) -> OneMessage:
        self._push(delay=DELAY if state is State.SCHEDULED else 0)
        if state not in (State.SCHEDULED, State.READY):
            self.claim()
        if state is State.WAITING:
            self.settle("retry", delay=DELAY)
        elif state is State.ACKED:
            self.settle("ack")
        elif state is State.DEAD:
            self.settle("reject")
        elif state is State.EXPIRED:
            self.harness.configure(self.queue, dead_letters=False)
            self.settle("reject")
        elif state is State.SKIPPED:
            self.seek("end")
        assert self.state() is state
        return self

    def _push(self, delay: float) -> None:
        (receipt,) = self.harness.push("body", queue=self.queue, delay=delay, txid="t")
        self.partition_id = receipt.partition_id

    def state(self) -> State:
        """The state, read from the counts of the group: they stay when retention removes the message."""
        store = self.harness.store
        if store.ask(q.QueueStats(queue=self.queue)).scheduled:
            return State.SCHEDULED
        (cursor,) = store.ask(q.ListCursors(queue=self.queue, group=QUEUE_MODE))
        if cursor.held:
            due = cursor.ready_at is not None and cursor.ready_at <= self.harness.clock.now()
            return State.LEASED if cursor.leased else State.READY if due else State.WAITING
        counts = {State.ACKED: cursor.acked, State.DEAD: cursor.dead, State.EXPIRED: cursor.expired}
        if finished := [state for state, number in counts.items() if number]:
            (state,) = finished
            return state
        return State.SKIPPED if cursor.first else State.READY

    # events

    def fire(self, event: LifecycleEvent, guard: Guard = Guard.ALWAYS) -> Verdict | None:
        """Let an event happen. Returns the verdict of a settlement."""
        if event in SETTLEMENTS:
            return self.settle(SETTLEMENTS[event])
        if event is LifecycleEvent.SEEK:
            self.seek("end" if guard is Guard.BEHIND else "start")
        else:
            ways: dict[LifecycleEvent, Callable[[], object]] = {
                LifecycleEvent.DUE: lambda: self._wait(DELAY, "promote"),
                LifecycleEvent.CLAIM: self.claim,
                LifecycleEvent.AUTO_ACK: lambda: self.harness.claim(queue=self.queue, auto_ack=True),
                LifecycleEvent.ADVANCE: self._advance,
                LifecycleEvent.LEASE_EXPIRY: self._lose_lease,
                LifecycleEvent.MAX_WAIT: lambda: self._grow_old("max_wait", max_wait_seconds=AGE / 2),
                LifecycleEvent.RETENTION: lambda: self._grow_old(
                    "retain", retention_seconds=AGE / 2, completed_retention_seconds=AGE / 2
                ),
                LifecycleEvent.REDRIVE: self._redrive,
            }
            ways[event]()
        return None

    def claim(self) -> None:
        deliveries = self.harness.claim(queue=self.queue, seconds=LEASE).deliveries
        self.delivery = deliveries[0] if deliveries else self.delivery

    def settle(self, outcome: str, **rest: Any) -> Verdict:
        """Settle the last delivery or, without one, name the message by its ids."""
        by_ids = c.ByTransaction(self.partition_id, "t")
        (answer,) = self.harness.settle(entry(self.delivery or by_ids, outcome, **rest))
        return answer.verdict

    def settle_unheld(self, outcome: str) -> Verdict:
        selector = c.ByTransaction(self.partition_id, "t", unheld=True)
        (answer,) = self.harness.settle(entry(selector, outcome))
        return answer.verdict

    def seek(self, to: Literal["start", "end"]) -> None:
        self.harness.do(c.SeekGroup(queue=self.queue, group=QUEUE_MODE, to=to))

    def _wait(self, seconds: float, *duties: str) -> None:
        self.harness.advance(seconds)
        self.harness.sweep(*duties)

    def _grow_old(self, duty: str, **policy: float) -> None:
        self.harness.configure(self.queue, **policy)
        self._wait(AGE, duty)

    def _lose_lease(self) -> None:
        lease_ids = [self.delivery.lease_id] if self.delivery is not None else []
        self.harness.do(c.Break(lease_ids=lease_ids))

    def _advance(self) -> None:
        lanes = self.harness.store.ask(q.ListLanes(queue=self.queue))
        self.harness.do(
            c.AdvanceGroup(queue=self.queue, group=QUEUE_MODE, lanes={row.lane: row.head for row in lanes if row.head})
        )

    def _redrive(self) -> None:
        letters = [letter.id for letter in self.harness.dead(queue=self.queue)]
        self.harness.do(c.Redrive(ids=letters or [NO_LETTER]))


def returned(harness: StoreHarness) -> OneMessage:
    """A ready message that was delivered before."""
    message = OneMessage(harness).reach(State.LEASED)
    message.settle("release")
    assert message.state() is State.READY
    return message


@pytest.mark.parametrize("event", LifecycleEvent)
def test_event_moves_message_as_the_table_says(harness: StoreHarness, event: LifecycleEvent) -> None:
    for row in TRANSITIONS:
        if row.event is event and row.guard is not Guard.UNHELD:
            message = OneMessage(harness, **POLICIES.get(row.guard, {}))
            if (row.source, event) == (State.SKIPPED, LifecycleEvent.REDRIVE):
                message.reach(State.DEAD).seek("end")  # a redrive needs a dead letter
            else:
                message.reach(row.source)
            verdict = message.fire(event, row.guard)
            assert message.state() is seen_after(row), row
            assert verdict is None or verdict.settled


def seen_after(row: Transition) -> State:
    """The state that a row leads to. A released message is due at once."""
    return target(row.target, LifecycleEvent.DUE) if row.event is LifecycleEvent.RELEASE else row.target


@pytest.mark.parametrize("event", LifecycleEvent)
def test_event_missing_in_the_table_changes_nothing(harness: StoreHarness, event: LifecycleEvent) -> None:
    known = {row.source for row in TRANSITIONS if row.event is event}
    for state in set(State) - known:
        message = OneMessage(harness).reach(state)
        verdict = message.fire(event)
        assert message.state() is state, (state, event)
        assert verdict is None or not verdict.settled


@pytest.mark.parametrize(
    "event", [LifecycleEvent.CLAIM, LifecycleEvent.AUTO_ACK, LifecycleEvent.MAX_WAIT, LifecycleEvent.SEEK]
)
def test_returned_message_moves_like_an_unread_one(harness: StoreHarness, event: LifecycleEvent) -> None:
    guard = {LifecycleEvent.MAX_WAIT: Guard.KEPT, LifecycleEvent.SEEK: Guard.BEHIND}.get(event, Guard.ALWAYS)
    message = returned(harness)
    message.fire(event, guard)
    assert message.state() is target(State.READY, event, guard)


@pytest.mark.parametrize("event", [LifecycleEvent.ADVANCE, LifecycleEvent.RETENTION])
def test_returned_message_is_spared_by_moves_of_unread(harness: StoreHarness, event: LifecycleEvent) -> None:
    message = returned(harness)
    message.fire(event)
    assert message.state() is State.READY


def test_waiting_message_is_not_claimed(harness: StoreHarness) -> None:
    message = OneMessage(harness).reach(State.WAITING)
    message.fire(LifecycleEvent.CLAIM)
    message.fire(LifecycleEvent.AUTO_ACK)
    assert message.state() is State.WAITING


@pytest.mark.parametrize("outcome", [LifecycleEvent.ACK, LifecycleEvent.REJECT, LifecycleEvent.RELEASE])
def test_settlement_without_lease_claims_and_settles(harness: StoreHarness, outcome: LifecycleEvent) -> None:
    message = OneMessage(harness).reach(State.WAITING)
    assert message.settle_unheld(outcome.value).settled
    leased = target(State.WAITING, LifecycleEvent.CLAIM, Guard.UNHELD)
    guard = Guard.KEPT if outcome is LifecycleEvent.REJECT else Guard.ALWAYS
    assert message.state() is seen_after(Transition(leased, outcome, guard, target(leased, outcome, guard)))


def test_seek_leaves_ready_ready_and_skipped_skipped(harness: StoreHarness) -> None:
    for state, guard in ((State.READY, Guard.AHEAD), (State.SKIPPED, Guard.BEHIND)):
        message = OneMessage(harness).reach(state)
        message.fire(LifecycleEvent.SEEK, guard)
        assert message.state() is state


def test_redrive_after_seek_to_before_it_is_refused(harness: StoreHarness) -> None:
    message = OneMessage(harness).reach(State.DEAD)
    message.seek("start")
    (letter,) = harness.dead(queue=message.queue)
    assert harness.redrive(letter).results == {letter.id: "redrive_refused"}
    assert message.state() is State.READY


def test_lease_expires_by_time_as_by_connection(harness: StoreHarness) -> None:
    message = OneMessage(harness).reach(State.LEASED)
    harness.advance(LEASE)
    harness.sweep("expire")
    assert message.state() is target(State.LEASED, LifecycleEvent.LEASE_EXPIRY, Guard.AGAIN)
