"""The claim flow without a broker: which steps follow which results and errors."""

from __future__ import annotations

import logging
import time
from asyncio import CancelledError
from contextlib import suppress
from typing import Any, cast

import msgspec
import pytest

from ackwise.broker.background_flows import run_duties
from ackwise.broker.broker_state import BrokerState
from ackwise.broker.claim_flow import ClaimFlow, ClaimOptions
from ackwise.broker.long_polls import LongPoll
from ackwise.broker.maintenance import PURGE, Schedule
from ackwise.broker.steps import Ask, Background, Flow, Join, Maintain, Park, Read, Release, Sleep, Step, Submit
from ackwise.broker.turn_queue import Submission
from ackwise.clock import ManualClock
from ackwise.core.answers import Claimed, ClaimProgress, Grant, Handed, Settled, Swept
from ackwise.core.commands import ByLease, Claim, Command, Push, Settle, Sweep
from ackwise.core.errors import AckwiseError, BadInput, Draining, Overloaded, StoreUnavailable, UnknownQueue
from ackwise.core.events import EventStream
from ackwise.core.ids import LaneId
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Verdict
from ackwise.store.port import Store, StoreTraits
from tests.broker.parked_claims import unparked_after_commit
from tests.broker.support import claim

SECOND = 1_000_000
NOTHING = Claimed("g", [], empty=EmptyReason.EMPTY)
SETTLE = Settle(entries=[])
SETTLED = [Settled(Verdict.ACKED, 1)]


class StillStore:
    """A store with a clock that stands still."""

    traits = StoreTraits("nowhere", "here", shards=1, schema=1, local=True)
    clock = ManualClock(0)
    events = EventStream()


@pytest.fixture
def state() -> BrokerState:
    return BrokerState(cast(Store, StillStore()))


@pytest.fixture
def flows(state: BrokerState) -> ClaimFlow:
    return ClaimFlow(state)


def granted(lease_no: int = 7) -> Claimed:
    grant = Grant("q", "p", "uuid", LaneId(1), priority=0, lo=0, hi=1, failures=0, attempt=1)
    return Claimed("g", [grant], lease_no=lease_no, tag=1)


def answered(*results: Any) -> Submission:
    """A submission whose turn is over."""
    submission = Submission([], lambda: None)
    submission.results, submission.finished = list(results), True
    return submission


def waiting(seconds: float = 60.0) -> ClaimOptions:
    return ClaimOptions(time.monotonic() + seconds)


NOT_WAITING = ClaimOptions(0.0)


def result(flow: Flow[Any], answer: Any = None) -> Any:
    """The result of a flow that ends after this answer."""
    with pytest.raises(StopIteration) as stop:
        flow.send(answer)
    return stop.value.value


def interrupt(flow: Flow[Any]) -> None:
    """End a flow whose further steps do not matter. A flow that is only dropped could not release its claims."""
    with suppress(CancelledError):
        while True:
            flow.throw(CancelledError())


def parked_step(flow: Flow[Any], state: BrokerState, empty: Claimed = NOTHING) -> Park:
    """Let a claim find nothing and park."""
    assert isinstance(next(flow), Submit)
    step = flow.send(answered(empty))
    assert isinstance(step, Park)
    assert state.long_polls.park(step.poll, step.seen)
    return step


def released(step: Step) -> list[str]:
    """Leases that a step releases."""
    assert isinstance(step, Release)
    return [entry.selector.lease_id for entry in step.command.entries if isinstance(entry.selector, ByLease)]


def test_claim_that_finds_messages_reads_them(flows: ClaimFlow) -> None:
    parks: list[None] = []
    flow = flows.claim(claim(), ClaimOptions(waiting().give_up, on_park=lambda: parks.append(None)))
    assert next(flow) == Submit([claim()])
    assert flow.send(answered(granted())) == Read(granted(), None)
    handed = Handed(granted(), ())
    assert result(flow, handed) is handed
    assert parks == []


def test_claim_that_finds_nothing_reads_nothing(flows: ClaimFlow) -> None:
    flow = flows.claim(claim(), NOT_WAITING)
    next(flow)
    assert result(flow, answered(NOTHING)) == Handed(NOTHING, ())


@pytest.mark.parametrize(("until", "seconds"), [(None, 60.0), (2 * SECOND, 2.0), (-SECOND, 0.001)])
def test_park_ends_when_a_message_becomes_due(
    flows: ClaimFlow, state: BrokerState, until: int | None, seconds: float
) -> None:
    flow = flows.claim(claim(), waiting())
    step = parked_step(flow, state, Claimed("g", [], empty=EmptyReason.DELAYED, until=until))
    assert step.seconds == pytest.approx(seconds, abs=1.0 if until is None else 0.0)


def test_retry_of_a_claim_with_a_key_takes_nothing_over(flows: ClaimFlow, state: BrokerState) -> None:
    keyed = msgspec.structs.replace(claim(), key="mine")
    flow = flows.claim(keyed, waiting())
    parked_step(flow, state)
    step = flow.send(None)
    assert isinstance(step, Submit)
    (again,) = step.commands
    assert isinstance(again, Claim)
    assert (keyed.takes_over, again.takes_over) == (True, False)


def test_rider_with_messages_reads_them_without_a_retry(flows: ClaimFlow, state: BrokerState) -> None:
    flow = flows.claim(claim(), waiting())
    step = parked_step(flow, state)
    step.poll.results = [granted()]
    assert flow.send(None) == Read(granted(), None)
    interrupt(flow)


def test_rider_with_an_earlier_due_time_parks_again(flows: ClaimFlow, state: BrokerState) -> None:
    flow = flows.claim(claim(), waiting())
    step = parked_step(flow, state)
    step.poll.results = [Claimed("g", [], empty=EmptyReason.DELAYED, until=SECOND)]
    again = flow.send(None)
    assert isinstance(again, Park)
    assert (again.poll.until, again.seconds) == (SECOND, 1.0)
    interrupt(flow)


def test_error_of_a_turn_reaches_its_rider(flows: ClaimFlow, state: BrokerState) -> None:
    flow = flows.claim(claim(), waiting())
    step = parked_step(flow, state)
    step.poll.error = StoreUnavailable("gone")
    with pytest.raises(StoreUnavailable):
        flow.send(None)


def test_cancelled_park_wakes_a_successor(flows: ClaimFlow, state: BrokerState) -> None:
    """The cancelled claim knew when a message becomes due: another claim must learn it."""
    flow = flows.claim(claim(), waiting())
    parked_step(flow, state, Claimed("g", [], empty=EmptyReason.DELAYED, until=SECOND))
    successor = LongPoll(claim(), lambda: None)
    assert state.long_polls.park(successor, state.long_polls.version("q"))
    with pytest.raises(CancelledError):
        flow.throw(CancelledError())
    assert (len(state.long_polls), successor.finished, successor.results) == (0, True, [])


def test_claim_that_gives_up_wakes_a_successor(flows: ClaimFlow, state: BrokerState) -> None:
    delayed = Claimed("g", [], empty=EmptyReason.DELAYED, until=SECOND)
    options = waiting()
    flow = flows.claim(claim(), options)
    step = parked_step(flow, state, delayed)
    assert state.long_polls.leave(step.poll)
    successor = LongPoll(claim(), lambda: None)
    assert state.long_polls.park(successor, state.long_polls.version("q"))
    options.give_up = 0.0
    assert isinstance(flow.send(None), Submit)
    assert result(flow, answered(delayed)).claimed is delayed
    assert successor.finished


def test_grant_of_a_cancelled_rider_is_released(flows: ClaimFlow, state: BrokerState) -> None:
    flow = flows.claim(claim(), waiting())
    step = parked_step(flow, state)
    state.long_polls._remove([step.poll])  # a turn takes it
    background = flow.throw(CancelledError())
    assert isinstance(background, Background)
    with pytest.raises(CancelledError):
        flow.send(None)
    assert next(background.flow) == Join(step.poll)
    step.poll.results = [granted()]
    assert released(background.flow.send(None)) == [granted().lease_id]
    assert result(background.flow, answered(SETTLED)) is None


def test_cancelled_claim_that_was_woken_wakes_the_others(flows: ClaimFlow, state: BrokerState) -> None:
    other = LongPoll(claim(), lambda: None)
    assert state.long_polls.park(other, state.long_polls.version("q"))
    woken = answered()
    flow = flows.release_cancelled(woken)
    assert next(flow) == Join(woken)
    assert result(flow) is None
    assert other.finished


def test_claim_that_cannot_be_read_is_released(flows: ClaimFlow) -> None:
    flow = flows.claim(claim(), NOT_WAITING)
    next(flow)
    assert isinstance(flow.send(answered(granted())), Read)
    background = flow.throw(MemoryError())
    assert isinstance(background, Background)
    assert released(next(background.flow)) == [granted().lease_id]
    with pytest.raises(MemoryError):
        flow.send(None)


def test_claim_granted_during_a_drain_is_released(flows: ClaimFlow, state: BrokerState) -> None:
    flow = flows.claim(claim(), waiting())
    next(flow)
    state.stop_claims()
    assert released(flow.send(answered(granted()))) == [granted().lease_id]
    assert result(flow, answered(SETTLED)).claimed.empty is EmptyReason.DRAINING


def test_auto_acked_claim_is_delivered_during_a_drain(flows: ClaimFlow, state: BrokerState) -> None:
    """It has no lease: its messages cannot be released."""
    flow = flows.claim(claim(), NOT_WAITING)
    next(flow)
    state.stop_claims()
    assert flow.send(answered(granted(0))) == Read(granted(0), None)
    interrupt(flow)


def test_drain_during_the_first_try_forbids_parking(flows: ClaimFlow, state: BrokerState) -> None:
    for flow in (flows.claim(claim(), waiting()), flows.settle_and_claim(SETTLE, claim(), waiting())):
        state.draining = False
        first = next(flow)
        state.stop_claims()
        assert isinstance(first, Submit)
        step = flow.send(answered(*([NOTHING] if len(first.commands) == 1 else [SETTLED, NOTHING])))
        assert isinstance(step, Park)
        assert not state.long_polls.park(step.poll, step.seen)
        interrupt(flow)


PROGRESS = ClaimProgress(5, "a")
UNFINISHED = Claimed("g", [], empty=EmptyReason.EMPTY, more=PROGRESS)
BY_TAG = Claim(namespace="shop", key="mine")
CONTINUED = msgspec.structs.replace(BY_TAG, progress=PROGRESS, takes_over=False)


def test_unfinished_claim_continues_before_it_is_answered(flows: ClaimFlow) -> None:
    flow = flows.claim(BY_TAG, NOT_WAITING)
    assert next(flow) == Submit([BY_TAG])
    assert flow.send(answered(UNFINISHED)) == Submit([CONTINUED])
    assert flow.send(answered(UNFINISHED)) == Submit([CONTINUED])
    assert result(flow, answered(NOTHING)) == Handed(NOTHING, ())


def test_unfinished_claim_continues_before_it_parks(flows: ClaimFlow, state: BrokerState) -> None:
    flow = flows.claim(BY_TAG, waiting())
    next(flow)
    flow.send(answered(UNFINISHED))
    step = flow.send(answered(NOTHING))
    assert isinstance(step, Park)
    assert step.poll.commands == [msgspec.structs.replace(BY_TAG, takes_over=False)], "a retry begins anew"
    interrupt(flow)


def test_unfinished_rider_continues(flows: ClaimFlow, state: BrokerState) -> None:
    flow = flows.claim(BY_TAG, waiting())
    step = parked_step(flow, state)
    step.poll.results = [UNFINISHED]
    assert flow.send(None) == Submit([CONTINUED])
    interrupt(flow)


def test_unfinished_claim_ends_when_the_broker_drains(flows: ClaimFlow, state: BrokerState) -> None:
    flow = flows.claim(BY_TAG, NOT_WAITING)
    next(flow)
    state.draining = True
    assert result(flow, answered(UNFINISHED)).claimed.empty is EmptyReason.DRAINING


def test_unfinished_claims_ahead_keep_the_settlement(flows: ClaimFlow) -> None:
    flow = flows.claim_ahead(SETTLE, Claim(namespace="shop"), 2)
    next(flow)
    step = flow.send(answered(SETTLED, UNFINISHED, UNFINISHED))
    assert isinstance(step, Submit)
    assert len(step.commands) == 1
    with pytest.raises(StopIteration) as stop:
        flow.throw(StoreUnavailable("gone"))
    assert stop.value.value == (SETTLED, [])


def test_unfinished_rider_leaves_messages_for_other_claims(state: BrokerState) -> None:
    """The rider has not visited all queues, so another claim with the same selection may find the message."""
    polls = state.long_polls
    rider, other = (LongPoll(BY_TAG, lambda: None) for _ in range(2))
    for poll in (rider, other):
        assert polls.park(poll, polls.version(None))
    riders: list[LongPoll] = []
    polls.ride([Push(queue="q", messages=[NewMessage(b"1")])], riders)
    assert riders == [rider]
    rider.results = [UNFINISHED]
    assert unparked_after_commit(polls, {"q": 1}, riders) == [rider, other]


def test_failed_release_is_logged(flows: ClaimFlow, caplog: pytest.LogCaptureFixture) -> None:
    flow = flows.release([granted()])
    next(flow)
    with caplog.at_level(logging.WARNING), pytest.raises(StopIteration):
        flow.throw(StoreUnavailable("gone"))
    assert "releasing a claim failed" in caplog.text


@pytest.mark.parametrize("problem", [StoreUnavailable("gone"), Overloaded("full"), BadInput("no")])
def test_settlement_is_answered_when_the_claim_fails(flows: ClaimFlow, problem: AckwiseError) -> None:
    flow = flows.settle_and_claim(SETTLE, claim(), NOT_WAITING)
    assert next(flow) == Submit([SETTLE, claim()])
    flow.send(answered(SETTLED, granted()))
    assert isinstance(flow.throw(problem), Background)
    settled, handed = result(flow)
    assert (settled, handed.claimed.empty) == (SETTLED, EmptyReason.UNAVAILABLE)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [(UnknownQueue("deleted"), EmptyReason.UNAVAILABLE), (Draining("closed"), EmptyReason.DRAINING)],
)
def test_settlement_is_answered_when_a_retry_is_refused(
    flows: ClaimFlow, state: BrokerState, problem: AckwiseError, reason: EmptyReason
) -> None:
    flow = flows.settle_and_claim(SETTLE, claim(), waiting())
    next(flow)
    step = flow.send(answered(SETTLED, NOTHING))
    assert isinstance(step, Park)
    step.poll.results = []
    assert isinstance(flow.send(None), Submit)
    with pytest.raises(StopIteration) as stop:
        flow.send(answered(problem))
    settled, handed = stop.value.value
    assert (settled, handed.claimed.empty) == (SETTLED, reason)


def test_refusal_releases_the_claims_of_its_turn(flows: ClaimFlow) -> None:
    flow = flows.claim_ahead(SETTLE, claim(), 2)
    next(flow)
    refusal = UnknownQueue("nowhere")
    assert released(flow.send(answered(SETTLED, granted(), refusal))) == [granted().lease_id]
    with pytest.raises(UnknownQueue) as raised:
        flow.send(answered(SETTLED))
    assert raised.value.details["settled"] == SETTLED


def test_claims_after_an_unreadable_one_are_released(flows: ClaimFlow) -> None:
    flow = flows.claim_each([claim()] * 3)
    next(flow)
    first, second, third = granted(1), granted(2), granted(3)
    assert flow.send(answered(first, second, third)) == Read(first, None)
    assert flow.send(Handed(first, ())) == Read(second, None)
    background = flow.throw(StoreUnavailable("gone"))
    assert isinstance(background, Background)
    assert released(next(background.flow)) == [second.lease_id]
    assert released(flow.send(None)) == [third.lease_id]
    answers = result(flow, answered(SETTLED))
    assert [one.claimed.empty for one in answers] == [None, EmptyReason.UNAVAILABLE, EmptyReason.UNAVAILABLE]


def test_cancelled_release_still_releases_the_other_claims(flows: ClaimFlow) -> None:
    flow = flows.claim_each([claim()] * 3)
    next(flow)
    first, second, third = granted(1), granted(2), granted(3)
    flow.send(answered(first, second, third))
    flow.send(Handed(first, ()))
    flow.throw(StoreUnavailable("gone"))
    assert released(flow.send(None)) == [third.lease_id]
    background = flow.throw(CancelledError())
    assert isinstance(background, Background)
    assert released(next(background.flow)) == [first.lease_id, third.lease_id]
    with pytest.raises(CancelledError):
        flow.send(None)


def test_drain_releases_the_leases_that_are_left(flows: ClaimFlow, state: BrokerState) -> None:
    class Lease(msgspec.Struct):
        lease_id: str

    flow = flows.drain(60.0)
    assert isinstance(next(flow), Ask)
    assert state.draining
    assert isinstance(flow.send([Lease("a"), Lease("b")]), Sleep)
    assert isinstance(flow.send(False), Ask)
    assert isinstance(flow.send([]), Ask)
    assert isinstance(flow.send([Lease("b")]), Submit)
    assert result(flow, answered([Settled(Verdict.RELEASED, 3)])) == 3


# background


def commands_until_maintenance(flow: Flow[None], answers: dict[type[Command], Any]) -> list[Command]:
    """Let the duties that are due run. Each gets the answer for its type, or the error."""
    step, sent = flow.send(False), []
    while isinstance(step, Submit):
        (command,) = step.commands
        sent.append(command)
        answer = answers[type(command)]
        step = flow.throw(answer) if isinstance(answer, Exception) else flow.send(answered(answer))
    assert isinstance(step, Maintain)
    return sent


def test_duty_with_more_to_do_runs_again(state: BrokerState) -> None:
    flow = run_duties(state, Schedule(0.0, ["graph"]))
    assert next(flow) == Sleep(0.0)
    sent = commands_until_maintenance(flow, {Sweep: Swept({}, more=True)})
    assert [sent.count(command) for command in (Sweep(duties=("graph",)), PURGE)] == [20, 1]
    assert result_of_pause(flow)


def result_of_pause(flow: Flow[None]) -> bool:
    """Whether the duties end when the broker closes."""
    assert isinstance(flow.send(None), Sleep)
    return result(flow, True) is None


@pytest.mark.parametrize("closed", [False, True])
def test_failed_duty_is_logged_unless_closed(
    state: BrokerState, caplog: pytest.LogCaptureFixture, closed: bool
) -> None:
    flow = run_duties(state, Schedule(0.0, ["graph"]))
    next(flow)
    state.closed = closed
    with caplog.at_level(logging.WARNING):
        sent = commands_until_maintenance(flow, {Sweep: StoreUnavailable("gone")})
        assert isinstance(flow.throw(StoreUnavailable("gone")), Sleep)
    assert len(sent) == 4
    assert ("sweep failed" in caplog.text, "maintenance failed" in caplog.text) == (not closed, True)
