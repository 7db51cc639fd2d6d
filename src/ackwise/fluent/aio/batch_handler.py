"""Runs a handler and its callbacks under a lease."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import msgspec

from ackwise.client.aio import AsyncBatch, AsyncConnection
from ackwise.client.aio.lease import AsyncLease
from ackwise.client.aio.lease_keeper import AsyncLeaseKeeper, extend_all
from ackwise.client.concurrency.aio import AsyncFunctionRunner, AsyncLeaseGuard
from ackwise.client.kept_lease import is_due
from ackwise.client.resilience import is_transient
from ackwise.client.settlements import reject, verdict_of
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


class AsyncHandlerCall:
    """One call of the handler and its callbacks. The argument is a message or a list of messages."""

    def __init__(self, argument: Any, batch: AsyncBatch, guard: AsyncLeaseGuard) -> None:
        self.argument, self.batch, self.guard = argument, batch, guard
        self.end = FunctionEnd()

    @property
    def messages(self) -> list[Message]:
        return self.argument if isinstance(self.argument, list) else [self.argument]


class AsyncBatchHandler:
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
        self._guards: set[AsyncLeaseGuard] = set()
        self._cancelled = False
        self._runner = AsyncFunctionRunner()
        self._connection: AsyncConnection
        self._keeper: AsyncLeaseKeeper[AsyncLease]
        self._sleep: Callable[[float], Any]

    def begin(self, connection: AsyncConnection, sleep: Callable[[float], Any]) -> None:
        """Set the connection and the sleep function before the first batch."""
        self._connection, self._sleep = connection, sleep
        transport = connection.transport
        self._keeper = AsyncLeaseKeeper(transport.now, partial(extend_all, transport), every=self._options.renew_every)

    async def close(self) -> None:
        """Stop renewing leases."""
        await self._keeper.close()

    @property
    def busy(self) -> bool:
        """Whether a batch is in progress."""
        return self._busy > 0

    def cancel_running(self) -> None:
        """Cancel running handlers: their messages are about to be released."""
        self._cancelled = True
        for guard in list(self._guards):
            guard.lose()

    async def wait_for_threads(self, over: Callable[[], bool]) -> bool:
        """Wait while abandoned threads still run. False if `over()` becomes true first."""
        return await self._runner.wait_for_threads(over)

    async def handle(self, batch: AsyncBatch) -> None:
        """Handle all messages of a batch."""
        with self._guard:
            self._busy += 1
        try:
            await self._handle_batch(batch)
        finally:
            with self._guard:
                self._busy -= 1

    async def _handle_batch(self, batch: AsyncBatch) -> None:
        messages = await self._reject_unreadable(batch)
        single = self._options.each or self._options.batch == 1
        rest = [[message] for message in messages] if single else [messages] if messages else []
        try:
            while rest and not self.stopping:
                group = rest.pop(0)
                kept = await self._handle(group[0] if single else group, batch)
                if rest and not (kept and await self._still_holds(batch)):
                    log.warning("%s: a lease was lost; the rest of its batch is not handled", self._options.queue)
                    return
                if self.rewinds:
                    rest = [later for later in rest if not _is_rewound(group[0], later[0])]
            await self._release([message for group in rest for message in group])
        except BaseException:
            # Interrupted: release the messages, so that another consumer gets them at once.
            await self._release(messages)
            raise

    async def _reject_unreadable(self, batch: AsyncBatch) -> list[Message]:
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
                for message, answer in zip(bad, await self._connection.settle(outcomes), strict=True):
                    message.delivery.note(answer)
                    _is_settled(message, answer)
        return [message for message in messages if message.problem is None]

    async def _still_holds(self, batch: AsyncBatch) -> bool:
        """Whether the consumer still holds the rest of the batch. Renews the lease if it is due."""
        lease = batch.lease
        if self._options.auto_ack:
            return True
        if lease.ended or self._has_expired(batch):
            return False
        try:
            if (self._options.renew or lease.in_doubt) and is_due(lease, self._connection.transport.now()):
                await lease.extend()
        except LeaseLost:
            return False
        except AckwiseError as problem:
            log.warning("a lease of %s could not be renewed: %s", self._options.queue, problem)
        return True

    def _has_expired(self, batch: AsyncBatch) -> bool:
        lease = batch.lease
        return not lease.is_ending and self._connection.transport.now() >= lease.deadline

    async def _handle(self, argument: Any, batch: AsyncBatch) -> bool:
        """Call the handler under the batch's lease. False if the lease was lost meanwhile."""
        renew = self._options.renew
        guard = AsyncLeaseGuard(lambda: renew and self._has_expired(batch))
        call = AsyncHandlerCall(argument, batch, guard)
        self._guards.add(guard)
        try:
            with self._keeper.keeping(batch.lease, lambda _: guard.lose()) if renew else nullcontext():
                await guard.run(lambda: self._run_call(call))
        except LeaseLost as problem:
            await self._report_late(call, problem)
        finally:
            self._guards.discard(guard)
        return not guard.lost

    async def _run_call(self, call: AsyncHandlerCall) -> None:
        try:
            result = await self._call(call, self._handler, call.argument)
            call.guard.check()
            chosen = isinstance(result, Mapping) and isinstance(call.argument, list)
            outcomes = chosen_outcomes(call.argument, result) if chosen else []
        except Exception as problem:
            await self._failed(call, problem)
            return
        if await self._record(call, outcomes):
            if self.on_success is not None:
                await self._call_back(call, self.on_success, call.argument)
        elif call.guard.lost:
            await self._failed(call, LeaseLost())

    async def _call(self, call: AsyncHandlerCall, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._runner.call(call.guard.cancels, call.end.noting(function), *arguments)

    async def _report_late(self, call: AsyncHandlerCall, problem: LeaseLost) -> None:
        """Report a lost lease after the handler has ended.

        A cancelled task has ended already. A thread ends when its function returns.
        """
        while not (call.end.over or self._cancelled):
            await self._sleep(_CHECK_EVERY)
        late = AsyncHandlerCall(call.argument, call.batch, AsyncLeaseGuard())
        await late.guard.run(lambda: self._failed(late, problem))

    async def _failed(self, call: AsyncHandlerCall, problem: Exception) -> None:
        if self.on_error is not None:
            await self._call_back(call, self.on_error, call.argument, problem)
            return
        log.warning("the handler of %s failed: %s", self._options.queue, problem)
        if not isinstance(problem, LeaseLost):
            await self._record(call, failure_outcomes(call.messages, problem))

    async def _call_back(self, call: AsyncHandlerCall, callback: Callable[..., Any], *arguments: Any) -> None:
        try:
            await self._call(call, callback, *arguments)
        except Exception as problem:
            log.warning("a callback of %s failed: %s", self._options.queue, problem)

    async def _record(self, call: AsyncHandlerCall, outcomes: MessageOutcomes) -> bool:
        """Settle messages. Returns whether all are settled.

        After a transient error the same settlement is repeated while the lease lasts: a handler that succeeded does
        not count as failed because the server was away.
        """
        while True:
            try:
                answers = await self._settle(outcomes)
            except AckwiseError as problem:
                log.warning("outcomes of messages of %s could not be recorded: %s", self._options.queue, problem)
                if not is_transient(problem):
                    return False
            else:
                refused = [message for message, answer in answers if not _is_settled(message, answer)]
                return not refused
            await self._sleep(PAUSE_AFTER_FAILURE)
            if call.guard.lost or self._has_expired(call.batch):
                return False

    async def _release(self, messages: list[Message]) -> None:
        with suppress(AckwiseError):
            answers = await self._settle([(message, Outcome.RELEASE) for message in messages])
            with self._guard:
                self.released += sum(answer.count for _, answer in answers)

    async def release(self, claims: list[ByKey]) -> None:
        """Release the messages of claims without an answer."""
        entries = [Settlement(selector=claim, outcome=Outcome.RELEASE) for claim in claims]
        with suppress(AckwiseError):
            count = sum(answer.count for answer in await self._connection.settle(entries))
            with self._guard:
                self.released += count

    async def _settle(self, outcomes: MessageOutcomes) -> list[tuple[Message, Settled]]:
        """Settle the messages that are not settled yet. Returns them with their answers."""
        unsettled = [(message, outcome) for message, outcome in outcomes if message.delivery.verdict is None]
        entries = [(message.delivery, outcome) for message, outcome in unsettled]
        answers = await self._connection.settle(entries) if entries else []
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
