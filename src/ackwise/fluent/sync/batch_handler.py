# Generated from ../aio/batch_handler.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Runs a handler and its callbacks under a lease."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import msgspec

from ackwise.client.concurrency.threads import FunctionRunner, LeaseGuard
from ackwise.client.kept_lease import is_due
from ackwise.client.resilience import is_transient
from ackwise.client.settlements import reject, verdict_of
from ackwise.client.sync import Batch, Connection
from ackwise.client.sync.lease import Lease
from ackwise.client.sync.lease_keeper import LeaseKeeper, extend_all
from ackwise.core.answers import Settled
from ackwise.core.commands import ByKey, Settlement
from ackwise.core.errors import AckwiseError, LeaseLost
from ackwise.core.settlement import Outcome, Verdict
from ackwise.fluent.messages import Message
from ackwise.fluent.options import Options
from ackwise.fluent.outcomes import FunctionEnd, MessageOutcomes, chosen_outcomes, failure_outcomes

log = logging.getLogger("ackwise.fluent")

PAUSE_AFTER_FAILURE = 1.0
_CHECK_EVERY = 0.02


class HandlerCall:
    """One call of the handler and its callbacks. The argument is a message or a list of messages."""

    def __init__(self, argument: Any, batch: Batch, guard: LeaseGuard) -> None:
        self.argument, self.batch, self.guard = argument, batch, guard
        self.end = FunctionEnd()

    @property
    def messages(self) -> list[Message]:
        return self.argument if isinstance(self.argument, list) else [self.argument]


class BatchHandler:
    """Handles the batches of one consumer: calls its handler and callbacks, settles messages, renews leases.

    All workers of the consumer share it.
    """

    def __init__(self, options: Options, handler: Callable[..., Any]) -> None:
        self._options, self._handler = options, handler
        self.on_success: Callable[..., Any] | None = None
        self.on_error: Callable[..., Any] | None = None
        self.rewinds = False
        """Whether the queue has `on_failure=rewind`: a failure also returns the messages after it."""
        self.stopping = False
        """Whether to start no further handler and to release the claimed messages."""
        self.released = 0
        self._guard = threading.Lock()
        self._busy = 0
        self._guards: set[LeaseGuard] = set()
        self._cancelled = False
        self._runner = FunctionRunner()
        self._connection: Connection
        self._keeper: LeaseKeeper[Lease]
        self._sleep: Callable[[float], Any]

    def begin(self, connection: Connection, sleep: Callable[[float], Any]) -> None:
        """Set the connection and the sleep function before the first batch."""
        self._connection, self._sleep = connection, sleep
        transport = connection.transport
        self._keeper = LeaseKeeper(transport.now, partial(extend_all, transport), every=self._options.renew_every)

    def close(self) -> None:
        """Stop renewing leases."""
        self._keeper.close()

    @property
    def busy(self) -> bool:
        """Whether a batch is in progress."""
        return self._busy > 0

    def cancel_running(self) -> None:
        """Cancel running handlers: their messages are about to be released."""
        self._cancelled = True
        for guard in list(self._guards):
            guard.lose()

    def wait_for_threads(self, over: Callable[[], bool]) -> bool:
        """Wait while abandoned threads still run. False if `over()` becomes true first."""
        return self._runner.wait_for_threads(over)

    def handle(self, batch: Batch) -> None:
        """Handle all messages of a batch."""
        with self._guard:
            self._busy += 1
        try:
            self._handle_batch(batch)
        finally:
            with self._guard:
                self._busy -= 1

    def _handle_batch(self, batch: Batch) -> None:
        messages = self._reject_unreadable(batch)
        single = self._options.each or self._options.batch == 1
        rest = [[message] for message in messages] if single else [messages] if messages else []
        try:
            while rest and not self.stopping:
                group = rest.pop(0)
                kept = self._handle(group[0] if single else group, batch)
                if rest and not (kept and self._still_holds(batch)):
                    log.warning("%s: a lease was lost; the rest of its batch is not handled", self._options.queue)
                    return
                if self.rewinds:
                    rest = [later for later in rest if not _is_rewound(group[0], later[0])]
            self._release([message for group in rest for message in group])
        except BaseException:
            # Interrupted: release the messages, so that another consumer gets them at once.
            self._release(messages)
            raise

    def _reject_unreadable(self, batch: Batch) -> list[Message]:
        """Reject the messages whose payload cannot be decoded. Returns the others."""
        messages = [Message(delivery) for delivery in batch]
        bad = [message for message in messages if message.problem is not None]
        for message in bad:
            log.warning("%r cannot be read: %s", message, message.problem)
        if bad and not self._options.auto_ack:
            outcomes = [
                msgspec.structs.replace(reject(message.delivery.selector, message.problem), undecodable=True)
                for message in bad
            ]
            with suppress(AckwiseError):
                for message, answer in zip(bad, self._connection.settle(outcomes), strict=True):
                    message.delivery.note(answer)
                    _is_settled(message, answer)
        return [message for message in messages if message.problem is None]

    def _still_holds(self, batch: Batch) -> bool:
        """Whether the consumer still holds the rest of the batch. Renews the lease if it is due."""
        lease = batch.lease
        if self._options.auto_ack:
            return True
        if lease.ended or self._has_expired(batch):
            return False
        try:
            if (self._options.renew or lease.in_doubt) and is_due(lease, self._connection.transport.now()):
                lease.extend()
        except LeaseLost:
            return False
        except AckwiseError as problem:
            log.warning("a lease of %s could not be renewed: %s", self._options.queue, problem)
        return True

    def _has_expired(self, batch: Batch) -> bool:
        lease = batch.lease
        return not lease.is_ending and self._connection.transport.now() >= lease.deadline

    def _handle(self, argument: Any, batch: Batch) -> bool:
        """Call the handler under the batch's lease. False if the lease was lost meanwhile."""
        renew = self._options.renew
        guard = LeaseGuard(lambda: renew and self._has_expired(batch))
        call = HandlerCall(argument, batch, guard)
        self._guards.add(guard)
        try:
            with self._keeper.keeping(batch.lease, lambda _: guard.lose()) if renew else nullcontext():
                guard.run(lambda: self._run_call(call))
        except LeaseLost as problem:
            self._report_late(call, problem)
        finally:
            self._guards.discard(guard)
        return not guard.lost

    def _run_call(self, call: HandlerCall) -> None:
        try:
            result = self._call(call, self._handler, call.argument)
            call.guard.check()
            chosen = isinstance(result, Mapping) and isinstance(call.argument, list)
            outcomes = chosen_outcomes(call.argument, result) if chosen else []
        except Exception as problem:
            self._failed(call, problem)
            return
        if self._record(call, outcomes):
            if self.on_success is not None:
                self._call_back(call, self.on_success, call.argument)
        elif call.guard.lost:
            self._failed(call, LeaseLost())

    def _call(self, call: HandlerCall, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._runner.call(call.guard.cancels, call.end.noting(function), *arguments)

    def _report_late(self, call: HandlerCall, problem: LeaseLost) -> None:
        """Report a lost lease after the handler has ended.

        A cancelled task has ended already. A thread ends when its function returns.
        """
        while not (call.end.over or self._cancelled):
            self._sleep(_CHECK_EVERY)
        late = HandlerCall(call.argument, call.batch, LeaseGuard())
        late.guard.run(lambda: self._failed(late, problem))

    def _failed(self, call: HandlerCall, problem: Exception) -> None:
        if self.on_error is not None:
            self._call_back(call, self.on_error, call.argument, problem)
            return
        log.warning("the handler of %s failed: %s", self._options.queue, problem)
        if not isinstance(problem, LeaseLost):
            self._record(call, failure_outcomes(call.messages, problem))

    def _call_back(self, call: HandlerCall, callback: Callable[..., Any], *arguments: Any) -> None:
        try:
            self._call(call, callback, *arguments)
        except Exception as problem:
            log.warning("a callback of %s failed: %s", self._options.queue, problem)

    def _record(self, call: HandlerCall, outcomes: MessageOutcomes) -> bool:
        """Settle messages. Returns whether all are settled.

        After a transient error the same settlement is repeated while the lease lasts: a handler that succeeded does
        not count as failed because the server was away.
        """
        while True:
            try:
                answers = self._settle(outcomes)
            except AckwiseError as problem:
                log.warning("outcomes of messages of %s could not be recorded: %s", self._options.queue, problem)
                if not is_transient(problem):
                    return False
            else:
                refused = [message for message, answer in answers if not _is_settled(message, answer)]
                return not refused
            self._sleep(PAUSE_AFTER_FAILURE)
            if call.guard.lost or self._has_expired(call.batch):
                return False

    def _release(self, messages: list[Message]) -> None:
        with suppress(AckwiseError):
            answers = self._settle([(message, Outcome.RELEASE) for message in messages])
            with self._guard:
                self.released += sum(answer.count for _, answer in answers)

    def release(self, claims: list[ByKey]) -> None:
        """Release the messages of claims without an answer."""
        entries = [Settlement(selector=claim, outcome=Outcome.RELEASE) for claim in claims]
        with suppress(AckwiseError):
            count = sum(answer.count for answer in self._connection.settle(entries))
            with self._guard:
                self.released += count

    def _settle(self, outcomes: MessageOutcomes) -> list[tuple[Message, Settled]]:
        """Settle the messages that are not settled yet. Returns them with their answers."""
        unsettled = [(message, outcome) for message, outcome in outcomes if message.delivery.verdict is None]
        entries = [(message.delivery, outcome) for message, outcome in unsettled]
        answers = self._connection.settle(entries) if entries else []
        return [(message, answer) for (message, _), answer in zip(unsettled, answers, strict=True)]


def _is_rewound(failed: Message, later: Message) -> bool:
    """Whether a failure in a queue with `on_failure=rewind` also returned a later message of the batch."""
    verdict = failed.delivery.verdict
    return verdict not in (None, Verdict.ACKED) and failed.partition_id == later.partition_id


def _is_settled(message: Message, answer: Settled) -> bool:
    """Whether the message is settled, now or before. Logs a refusal."""
    try:
        verdict_of(answer)
    except AckwiseError as refusal:
        log.warning("%r was not settled: %s", message, refusal)
        return False
    return True
