"""What becomes of a batch: the handler and its callbacks, under a lease that is kept meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ackwise.client.aio import AsyncBatch, AsyncConnection
from ackwise.client.beside.aio import AsyncHands, AsyncWatched, within
from ackwise.client.retrying import passes
from ackwise.client.settling import reject, verdict_of
from ackwise.core.answers import Settled
from ackwise.core.commands import ByKey, Settlement
from ackwise.core.errors import AckwiseError, LeaseLost
from ackwise.core.settlement import Outcome, Verdict
from ackwise.fluent.ending import Ending
from ackwise.fluent.messages import Message
from ackwise.fluent.options import Options
from ackwise.fluent.partial import Asks, asks_of, failures_of

log = logging.getLogger("ackwise.fluent")

RENEW_EVERY = 1.0
PAUSE_AFTER_FAILURE = 1.0
SHORTEST_PATIENCE = 0.5
"""Seconds for the answer to an extension; a quarter of a lease that is longer, so that there is time for another."""
_LOOK_AGAIN = 0.02


class AsyncWork:
    """A handler and its callbacks, at work on a message or a list."""

    def __init__(self, given: Any, batch: AsyncBatch) -> None:
        self.given, self.batch = given, batch
        self.watched = AsyncWatched()
        self.ending = Ending()

    @property
    def messages(self) -> list[Message]:
        return self.given if isinstance(self.given, list) else [self.given]


class AsyncHandling:
    """Of one consumer, for all its workers."""

    def __init__(self, options: Options, handler: Callable[..., Any]) -> None:
        self._options, self._handler = options, handler
        self.on_success: Callable[..., Any] | None = None
        self.on_error: Callable[..., Any] | None = None
        self.rewinds = False
        """Whether a failure in the queue takes what follows it along."""
        self.stopping = False
        """Nothing more is begun: what was claimed goes back."""
        self.given_back = 0
        self._guard = threading.Lock()
        self._busy = 0
        self._at_work: set[AsyncWatched] = set()
        self._cut_off = False
        self._hands = AsyncHands()
        self._connection: AsyncConnection
        self._sleep: Callable[[float], Any]

    def begin(self, connection: AsyncConnection, sleep: Callable[[float], Any]) -> None:
        self._connection, self._sleep = connection, sleep

    @property
    def busy(self) -> bool:
        """Whether something that was claimed is not finished with."""
        return self._busy > 0

    def cut_off(self) -> None:
        """What still runs will no longer be ours."""
        self._cut_off = True
        for watched in list(self._at_work):
            watched.lose()

    async def rested(self, over: Callable[[], bool]) -> bool:
        """Whether a worker may take more."""
        return await self._hands.rested(over)

    async def handle(self, batch: AsyncBatch) -> None:
        with self._guard:
            self._busy += 1
        try:
            await self._work_through(batch)
        finally:
            with self._guard:
                self._busy -= 1

    async def _work_through(self, batch: AsyncBatch) -> None:
        messages = await self._readable(batch)
        single = self._options.each or self._options.batch == 1
        rest = [[one] for one in messages] if single else [messages] if messages else []
        try:
            while rest and not self.stopping:
                given = rest.pop(0)
                kept = await self._handle(given[0] if single else given, batch)
                if rest and not (kept and await self._holds(batch)):
                    log.warning("%s: a lease was lost; what was left of it is not handled", self._options.queue)
                    return
                if self.rewinds:
                    rest = [later for later in rest if not _sent_back(given[0], later[0])]
            await self._give_back([one for given in rest for one in given])
        except BaseException:
            # Interrupted: somebody else may begin at once.
            await self._give_back(messages)
            raise

    async def _readable(self, batch: AsyncBatch) -> list[Message]:
        """The messages that can be read; the others can never be handled, and die."""
        messages = [Message(delivery) for delivery in batch]
        bad = [one for one in messages if one.problem is not None]
        for one in bad:
            log.warning("%r cannot be read: %s", one, one.problem)
        if bad and not self._options.auto_ack:
            asks = [
                msgspec.structs.replace(reject(one.delivery.selector, one.problem), undecodable=True) for one in bad
            ]
            with suppress(AckwiseError):
                for one, answer in zip(bad, await self._connection.settle(asks), strict=True):
                    one.delivery.note(answer)
                    _is_settled(one, answer)
        return [one for one in messages if one.problem is None]

    async def _holds(self, batch: AsyncBatch) -> bool:
        """Whether what is left of a batch is still ours to handle."""
        lease = batch.lease
        if self._options.auto_ack:
            return True
        if lease.ended or self._is_over(batch):
            return False
        try:
            if self._options.renew or lease.doubted:
                await lease.keep_alive()
        except LeaseLost:
            return False
        except AckwiseError as problem:
            log.warning("a lease of %s could not be renewed: %s", self._options.queue, problem)
        return True

    def _is_over(self, batch: AsyncBatch) -> bool:
        lease = batch.lease
        return not lease.ends_itself and self._connection.transport.now() >= lease.deadline

    async def _handle(self, given: Any, batch: AsyncBatch) -> bool:
        """Whether the lease was not lost meanwhile, as far as we know."""
        work = AsyncWork(given, batch)
        watched = work.watched
        renewed = self._options.renew and not batch.lease.ended
        every = self._options.renew_every or min(RENEW_EVERY, batch.lease.lasts / 4)
        self._at_work.add(watched)
        try:
            await watched.run(
                lambda: self._work(work),
                (lambda: self._beat(batch)) if renewed else None,
                lambda: self._is_over(batch),
                every,
            )
        except LeaseLost as problem:
            await self._told_late(work, problem)
        finally:
            self._at_work.discard(watched)
        return not watched.lost

    async def _work(self, work: AsyncWork) -> None:
        try:
            result = await self._call(work, self._handler, work.given)
            work.watched.check()
            chosen = isinstance(result, Mapping) and isinstance(work.given, list)
            asks = asks_of(work.given, result) if chosen else []
        except Exception as problem:
            await self._failed(work, problem)
            return
        if await self._recorded(work, asks):
            if self.on_success is not None:
                await self._told(work, self.on_success, work.given)
        elif work.watched.lost:
            await self._failed(work, LeaseLost())

    async def _call(self, work: AsyncWork, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._hands.call(work.watched.cancels, work.ending.of(function), *arguments)

    async def _told_late(self, work: AsyncWork, problem: LeaseLost) -> None:
        """The handler was cancelled, and its task is over. A thread comes to its end by itself, and is told then."""
        while not (work.ending.over or self._cut_off):
            await self._sleep(_LOOK_AGAIN)
        late = AsyncWork(work.given, work.batch)
        await late.watched.run(lambda: self._failed(late, problem), None, lambda: False, RENEW_EVERY)

    async def _failed(self, work: AsyncWork, problem: Exception) -> None:
        if self.on_error is not None:
            await self._told(work, self.on_error, work.given, problem)
            return
        log.warning("the handler of %s failed: %s", self._options.queue, problem)
        if not isinstance(problem, LeaseLost):
            await self._recorded(work, failures_of(work.messages, problem))

    async def _told(self, work: AsyncWork, callback: Callable[..., Any], *arguments: Any) -> None:
        try:
            await self._call(work, callback, *arguments)
        except Exception as problem:
            log.warning("a callback of %s failed: %s", self._options.queue, problem)

    async def _recorded(self, work: AsyncWork, asks: Asks) -> bool:
        """Whether all of it is settled. Trouble that passes is waited for while the messages are ours, and the same
        asked again: what was done does not become a failure by that."""
        while True:
            try:
                answers = await self._settle(asks)
            except AckwiseError as problem:
                log.warning("what became of messages of %s could not be recorded: %s", self._options.queue, problem)
                if not passes(problem):
                    return False
            else:
                refused = [one for one, answer in answers if not _is_settled(one, answer)]
                return not refused
            await self._sleep(PAUSE_AFTER_FAILURE)
            if work.watched.lost or self._is_over(work.batch):
                return False

    async def _give_back(self, messages: list[Message]) -> None:
        with suppress(AckwiseError):
            answers = await self._settle([(one, Outcome.RELEASE) for one in messages])
            with self._guard:
                self.given_back += sum(answer.count for _, answer in answers)

    async def release(self, claims: list[ByKey]) -> None:
        """What claims without an answer may have been granted."""
        asks = [Settlement(selector=one, outcome=Outcome.RELEASE) for one in claims]
        with suppress(AckwiseError):
            count = sum(answer.count for answer in await self._connection.settle(asks))
            with self._guard:
                self.given_back += count

    async def _settle(self, asks: Asks) -> list[tuple[Message, Settled]]:
        """Those that are not settled yet, with the answers."""
        rest = [(one, ask) for one, ask in asks if one.delivery.verdict is None]
        answers = await self._connection.settle([(one.delivery, ask) for one, ask in rest]) if rest else []
        return [(one, answer) for (one, _), answer in zip(rest, answers, strict=True)]

    async def _beat(self, batch: AsyncBatch) -> bool:
        """Whether it is still ours. An extension without an answer is tried again while there is time."""
        lease = batch.lease
        extend = lease.keep_alive if self._options.renew_every is None else lease.extend
        while not lease.ended:
            try:
                await within(max(SHORTEST_PATIENCE, lease.lasts / 4), extend)
                break
            except LeaseLost:
                return lease.ends_itself
            except TimeoutError:
                log.warning("a lease of %s could not be renewed, and is tried again: no answer", self._options.queue)
                if self._is_over(batch):
                    return False
            except Exception as problem:
                log.warning("a lease of %s could not be renewed, and is tried again: %s", self._options.queue, problem)
                break
        return True


def _sent_back(failed: Message, later: Message) -> bool:
    """Whether a failure in a queue that rewinds took a later message of the batch with it."""
    ended = failed.delivery.verdict
    return ended not in (None, Verdict.ACKED) and failed.partition_id == later.partition_id


def _is_settled(message: Message, answer: Settled) -> bool:
    """Whether it is settled, now or before; a refusal is said."""
    try:
        verdict_of(answer)
    except AckwiseError as refusal:
        log.warning("%r was not settled: %s", message, refusal)
        return False
    return True
