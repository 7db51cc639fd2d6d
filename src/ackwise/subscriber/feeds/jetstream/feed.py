"""The messages of one subscription: asked for ahead of its workers, kept alive and answered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from nats.aio.msg import Msg
from nats.errors import Error as NATSError

from ackwise.core.errors import StoreUnavailable
from ackwise.core.settlement import Outcome
from ackwise.subscriber.feeds.feed import Sink
from ackwise.subscriber.feeds.jetstream.consumer import PullConsumer
from ackwise.subscriber.feeds.jetstream.handover import NATSHandover
from ackwise.subscriber.feeds.jetstream.held import Held
from ackwise.subscriber.subscription import Subscription

if TYPE_CHECKING:
    from ackwise.subscriber.feeds.jetstream.link import NATSLink

log = logging.getLogger("ackwise.subscriber")

LOOK_EVERY = 1.0
PAUSE_AFTER_FAILURE = 1.0
FLUSH_WITHIN = 2


class NATSFeed:
    """It asks for messages, and is the desk at which they are answered."""

    def __init__(self, link: NATSLink, subscription: Subscription) -> None:
        self._link, self._subscription = link, subscription
        self._consumer = PullConsumer(link, subscription, self)
        self._acked_first = subscription.acked_first
        self._held = Held()
        self._sink: Sink | None = None
        self._answers: deque[tuple[NATSHandover, bytes]] = deque()
        self._wake, self._answered = asyncio.Event(), asyncio.Event()
        self._stopped, self._closed = asyncio.Event(), asyncio.Event()
        self._trouble: str | None = None

    async def open(self) -> None:
        await self._consumer.bind()

    # answering

    def wait_of(self, attempt: int) -> float | None:
        return self._consumer.wait_of(attempt)

    async def send(self, reply: str, answer: bytes) -> None:
        try:
            await self._link.client.publish(reply, answer)
        except NATSError as problem:
            raise StoreUnavailable(f"{self._link.url}: {problem}") from problem

    def send_soon(self, handover: NATSHandover, answer: bytes) -> None:
        self.over(handover)
        self._answers.append((handover, answer))
        self._answered.set()

    def over(self, handover: NATSHandover) -> None:
        self._held.over(handover)
        self.wake()

    def leave(self, handover: NATSHandover) -> None:
        self._held.leave(handover)
        self.wake()

    async def flush(self) -> None:
        while self._answers:
            handover, answer = self._answers[0]
            await self.send(handover.reply, answer)
            self._answers.popleft()
        if self._stopped.is_set():
            with suppress(NATSError, TimeoutError):
                await self._link.client.flush(FLUSH_WITHIN)

    async def _answering(self) -> None:
        while True:
            await self._answered.wait()
            self._answered.clear()
            if self._stopped.is_set():
                # What goes back now must not come to this app again.
                await self._closed.wait()
            try:
                await self.flush()
            except StoreUnavailable as problem:
                log.warning("%s: %s; trying again", self._subscription.queue, problem)
                await asyncio.sleep(PAUSE_AFTER_FAILURE)
                self._answered.set()

    async def _keeping(self) -> None:
        while True:
            await asyncio.sleep(self._consumer.shortest_wait / 3)
            for handover in list(self._held.working):
                if handover.until <= time.monotonic():
                    self._lose(handover)
                elif handover.awaited and self._link.client.is_connected:
                    # Else it would only be kept here for later.
                    with suppress(StoreUnavailable):
                        await handover.in_progress()

    def _lose(self, handover: NATSHandover) -> None:
        """JetStream was not told in time, and gives it to somebody else."""
        handover.lost = True
        self.over(handover)
        if self._sink is not None:
            self._sink.lost(handover)

    # taking

    def wake(self) -> None:
        self._wake.set()

    def look(self) -> None:
        """JetStream has its own clock."""

    def stop(self) -> None:
        self._stopped.set()
        self.wake()

    @property
    def fed(self) -> bool:
        """Its consumer is there, as far as is known."""
        return self._trouble is None

    def reconnected(self) -> None:
        if self._sink is not None:
            self._consumer.pull.forget()
            self.wake()

    async def run(self, sink: Sink) -> None:
        self._sink = sink
        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self._answering())]
            if not self._acked_first:
                beside.append(group.create_task(self._keeping()))
            await self._taking(sink)
            await self._consumer.pull.close()
            sink.no_more()
            self._closed.set()
            while self._held.working:
                # Handlers may take their time to finish: what they work on stays theirs.
                self._wake.clear()
                await self._wake.wait()
            for task in beside:
                task.cancel()

    async def _taking(self, sink: Sink) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            if self._trouble is not None:
                await self._begin_again(self._trouble)
                continue
            count = self._wanted(sink)
            if count:
                try:
                    await self._consumer.pull.ask(count)
                except Exception as problem:
                    self.failed(str(problem) or type(problem).__name__)
                    continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_EVERY)

    def _wanted(self, sink: Sink) -> int:
        """How many to ask for. While nobody is idle a few are not worth an ask."""
        working, asked = len(self._held.working), self._consumer.pull.asked
        room = min(sink.room, self._subscription.max_pending - len(self._held))
        count = max(0, room - asked)
        idle = working + asked < self._subscription.concurrency
        return count if idle or 4 * count >= working + room else 0

    def came(self, msg: Msg) -> None:
        handover = NATSHandover(msg, self)
        self._consumer.note(handover.sequence)
        if self._acked_first:
            self._put(handover)
        elif self._stopped.is_set():
            handover.settle_soon(Outcome.RELEASE)
        else:
            self._held.begin(handover)
            self._put(handover)

    def _put(self, handover: NATSHandover) -> None:
        assert self._sink is not None
        self._sink.put(handover)

    def ended(self) -> None:
        self.wake()

    def failed(self, why: str) -> None:
        self._trouble = why
        self.wake()

    async def _begin_again(self, why: str) -> None:
        """Whatever it was: feeding goes on. A consumer that is gone is made again."""
        log.warning("%s: %s; trying again", self._subscription.queue, why)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), PAUSE_AFTER_FAILURE)
        if self._stopped.is_set():
            return
        try:
            await self.open()
        except Exception as problem:
            self.failed(str(problem) or type(problem).__name__)
        else:
            self._trouble = None
