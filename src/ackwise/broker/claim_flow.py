"""Claim flow: try, park, try again, read the messages. Generators without I/O that both brokers drive."""

from __future__ import annotations

import itertools
import time
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from ackwise.broker import maintenance
from ackwise.broker.broker_state import BrokerState, wake
from ackwise.broker.deliveries import Gate, release_claims, split_answers, without_takeover
from ackwise.broker.long_polls import LongPoll, QueueVersion
from ackwise.broker.steps import Ask, Background, Flow, Join, Park, Read, Release, Sleep, Submit
from ackwise.broker.turn_queue import Submission, refused, with_refusals
from ackwise.core.answers import Claimed, Handed, Settled, empty_answer
from ackwise.core.command_checks import CheckedCommands
from ackwise.core.commands import Claim, Command, Settle, copies_of, next_command, release_command, share_bytes
from ackwise.core.errors import AckwiseError, Draining
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.queries import ListLeases
from ackwise.core.rows import LeaseRow

A = TypeVar("A")
DRAIN_PAUSE = 0.02
"""Seconds between two looks at the leases of a broker that drains."""

Try = tuple[QueueVersion, Claimed]
"""Answer to a claim, and the version of its queue before the claim ran."""


_NO_VERSION: QueueVersion = (-1, -1)
"""Version that no queue has."""

_FINAL = (EmptyReason.ENDED, EmptyReason.DRAINING)
"""A claim that is empty for one of these reasons does not wait."""


class ClaimOptions(msgspec.Struct, gc=False):
    """How long a claim waits, and what runs before it parks and before its messages are read.

    `stopped` and `gate` need an event loop.
    """

    give_up: float
    """When the wait ends, as seconds of `time.monotonic`."""
    stopped: Future[None] | None = None
    """Ends the wait earlier."""
    gate: Gate | None = None
    """Runs before the messages are read. It may wait or refuse the claim."""
    on_park: Callable[[], None] | None = None
    """Runs each time before the claim parks."""

    def may_wait(self) -> bool:
        return time.monotonic() < self.give_up and not (self.stopped is not None and self.stopped.done())


class ClaimFlow:
    """Flows of the claims of one broker.

    A claim that is granted either returns its messages or is released: the flow releases it after every error, also
    after a cancellation or an interrupt.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._long_polls = state.long_polls
        self._calls = itertools.count(1)

    def claim(self, claim: Claim, options: ClaimOptions) -> Flow[Handed]:
        """Validate a claim, try it, park and try again, until the options end the wait."""
        checked = CheckedCommands([claim], self._state.store.events)
        for refusal in checked.refusals.values():
            raise refusal
        return (yield from self._wait(claim, options))

    def _wait(self, claim: Claim, options: ClaimOptions, tried: Try | None = None) -> Flow[Handed]:
        """Try a valid claim until it has messages or the wait ends. `tried` is the result of a first try."""
        poll: LongPoll | None = None
        while True:
            seen, claimed = tried or (yield from self._try(claim, options, poll))
            if claimed.more is not None:
                claimed = yield from self._complete(claim, claimed)
            if claimed.grants or claimed.empty in _FINAL or not options.may_wait():
                break
            claim = without_takeover(claim)
            poll = LongPoll(claim, _not_parked, claimed.until)
            tried = yield from self._park(poll, seen, options)
        if poll is not None and claimed.until is not None:
            wake(self._long_polls.unpark_successor(poll))
        return (yield from self._deliver(claim, claimed, options.gate))

    def _try(self, claim: Claim, options: ClaimOptions, poll: LongPoll | None) -> Flow[Try]:
        """Run the claim in a turn, unless the broker drains. `poll` is the parked claim that was woken for this try.

        The version is read first. A broker that begins to drain afterwards changes the version, so that the claim does
        not park. A claim that may not wait needs no version.
        """
        seen = self._long_polls.version(claim.queue) if options.may_wait() else _NO_VERSION
        if self._state.draining:
            return seen, empty_answer(claim, EmptyReason.DRAINING).claimed
        submission: Submission[Claimed] = yield Submit([claim])
        claimed = submission.answers()[0]
        if claimed.more is not None:
            claimed = yield from self._complete(claim, claimed)
        if poll is not None:
            wake(self._long_polls.unpark_after_try(poll, claimed))
        return seen, claimed

    def _complete(self, claim: Claim, claimed: Claimed) -> Flow[Claimed]:
        """Continue a claim by namespace or task in later turns, until it has messages or has visited every queue."""
        while (rest := next_command(claim, claimed)) is not None:
            if self._state.draining:
                return empty_answer(claim, EmptyReason.DRAINING).claimed
            submission: Submission[Claimed] = yield Submit([rest])
            claimed = submission.answers()[0]
        return claimed

    def _park(self, poll: LongPoll, seen: QueueVersion, options: ClaimOptions) -> Flow[Try | None]:
        """Wait for messages. Returns the answer of a turn in which the claim rode. None means: try again."""
        if options.on_park is not None:
            options.on_park()
        seconds = options.give_up - time.monotonic()
        if poll.until is not None:
            seconds = min(seconds, max(0.001, (poll.until - self._state.store.clock.now()) / 1e6))
        try:
            yield Park(poll, seen, max(0.0, seconds), options.stopped)
        except BaseException:
            if not self._long_polls.leave(poll):
                yield Background(self.release_cancelled(poll))
            elif poll.until is not None:
                wake(self._long_polls.unpark_successor(poll))
            raise
        if poll.error is None and not poll.results:
            return None
        if poll.error is not None and poll.results:
            # An interrupt ended the commit of the turn. The commit may have granted the claim.
            yield Background(self.release_cancelled(poll))
        return poll.seen, poll.answers()[0]

    def _deliver(self, claim: Claim, claimed: Claimed, gate: Gate | None = None) -> Flow[Handed]:
        """Read the messages of a claim. Releases the claim if the broker drains or the messages cannot be read."""
        if not claimed.grants:
            return Handed(claimed, ())
        if claimed.lease_no and self._state.draining:
            yield from self.release([claimed])
            return empty_answer(claim, EmptyReason.DRAINING)
        try:
            handed: Handed = yield Read(claimed, gate)
            return handed
        except BaseException:
            yield Background(self.release([claimed]))
            raise

    def settle_and_claim(
        self, settle: Settle | None, claim: Claim, options: ClaimOptions
    ) -> Flow[tuple[list[Settled], Handed]]:
        """Settle one batch and claim the next in the same turn.

        If the claim fails after the settlement is committed, the flow returns the settlement and an empty claim.
        """
        if settle is None:
            return [], (yield from self.claim(claim, options))
        seen = self._long_polls.version(claim.queue)
        if self._state.draining:
            return (yield from self._settle(settle)), empty_answer(claim, EmptyReason.DRAINING)
        settled, claims = yield from self._run(settle, [claim])
        try:
            return settled, (yield from self._wait(claim, options, (seen, claims[0])))
        except Draining:
            return settled, empty_answer(claim, EmptyReason.DRAINING)
        except AckwiseError:
            return settled, empty_answer(claim, EmptyReason.UNAVAILABLE)

    def claim_ahead(
        self, settle: Settle | None, claim: Claim, count: int, gate: Gate | None = None
    ) -> Flow[tuple[list[Settled], list[Handed]]]:
        """Settle and claim up to `count` batches in one turn. Each batch has its own lease. Never waits.

        If no batch has messages and queues are left, only the first claim continues in later turns.
        """
        if self._state.draining:
            return (yield from self._settle(settle)), []
        claims = copies_of(share_bytes([claim], next(self._calls))[0], count)
        settled, answers = yield from self._run(settle, claims)
        if answers and answers[0].more is not None and not any(answer.grants for answer in answers):
            try:
                answers = [(yield from self._complete(claims[0], answers[0]))]
            except AckwiseError:
                return settled, []
        batches = yield from self._deliver_all(claims[: len(answers)], answers, gate)
        return settled, [batch for batch in batches if batch.claimed.grants]

    def claim_each(self, claims: Sequence[Claim]) -> Flow[list[Handed]]:
        """Run the claims of several consumers in one turn, in order. Returns one answer per claim. Never waits."""
        if self._state.draining or not claims:
            return [empty_answer(claim, EmptyReason.DRAINING) for claim in claims]
        _, answers = yield from self._run(None, share_bytes(claims, next(self._calls)))
        batches = yield from self._deliver_all(claims, answers)
        return [*batches, *(empty_answer(claim, EmptyReason.UNAVAILABLE) for claim in claims[len(batches) :])]

    def _settle(self, settle: Settle | None) -> Flow[list[Settled]]:
        if settle is None:
            return []
        submission = yield from self._submit([settle])
        return submission.answers()[0]

    def _submit(self, commands: Sequence[Command[A]]) -> Flow[Submission[A]]:
        """Validate commands and run the valid ones in a turn."""
        checked = CheckedCommands(commands, self._state.store.events)
        if not checked.valid:
            return refused(checked)
        return with_refusals((yield Submit(checked.valid)), checked)

    def _run(self, settle: Settle | None, claims: Sequence[Claim]) -> Flow[tuple[list[Settled], list[Claimed]]]:
        """Settle and claim in one turn. After a refusal all claims of the turn are released."""
        commands: list[Command] = [*claims] if settle is None else [settle, *claims]
        settled, answers, refusal = split_answers((yield from self._submit(commands)), settle)
        if refusal is not None:
            yield from self.release(answers)
            raise refusal
        return settled, answers

    def _deliver_all(
        self, claims: Sequence[Claim], answers: Sequence[Claimed], gate: Gate | None = None
    ) -> Flow[list[Handed]]:
        """Read the messages of each claim. After a failure the remaining claims are released."""
        batches: list[Handed] = []
        for number, (claim, claimed) in enumerate(zip(claims, answers, strict=True)):
            try:
                batches.append((yield from self._deliver(claim, claimed, gate)))
            except AckwiseError:
                others = [*answers[:number], *answers[number + 1 :]]
                try:
                    yield from self.release(answers[number + 1 :])
                except BaseException:
                    yield Background(self.release(others))
                    raise
                break
            except BaseException:
                # The caller gets no answer, so all claims are released.
                yield Background(self.release([*answers[:number], *answers[number + 1 :]]))
                raise
        return batches

    def release(self, claims: Sequence[Claimed]) -> Flow[None]:
        """Release claims whose messages did not reach their caller. The release costs no failure."""
        command = release_claims(claims)
        if command is None:
            return
        try:
            submission: Submission = yield Release(command)
            submission.answers()
        except AckwiseError as problem:
            maintenance.log_failure("releasing a claim", problem)

    def release_cancelled(self, submission: Submission) -> Flow[None]:
        """Release what a turn granted to a caller that was cancelled. The release costs no failure."""
        yield Join(submission)
        if submission.results == []:
            # The caller was woken to try again: the other parked claims must try in its place.
            self._state.retry_parked()
        yield from self.release([result for result in submission.results or [] if isinstance(result, Claimed)])

    def drain(self, grace: float) -> Flow[int]:
        """Stop claims, wait `grace` seconds for leases to end, release the rest. A release costs no failure."""
        self._state.stop_claims()
        end = time.monotonic() + grace
        while (yield from self._held()) and time.monotonic() < end:
            yield Sleep(DRAIN_PAUSE)
        released = 0
        for lease_id in (yield from self._held()):
            settled = yield from self._settle(release_command([lease_id]))
            released += settled[0].count
        return released

    def _held(self) -> Flow[list[str]]:
        """Ids of the leases that this broker granted and that have not ended."""
        leases: list[LeaseRow] = yield Ask(ListLeases(instance=self._state.store.traits.instance, limit=100_000))
        return [lease.lease_id for lease in leases]


def _not_parked() -> None:
    """The `wake` callback of a claim that is not parked yet."""
