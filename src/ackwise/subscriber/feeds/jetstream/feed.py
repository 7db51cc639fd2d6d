"""Feed of one JetStream subscription."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nats.aio.msg import Msg
from nats.errors import Error as NATSError

from ackwise.client.aio.lease_keeper import AsyncLeaseKeeper
from ackwise.core.errors import StoreUnavailable
from ackwise.core.settlement import Outcome
from ackwise.subscriber.feeds.held_deliveries import HeldDeliveries
from ackwise.subscriber.feeds.jetstream.consumer import PullConsumer
from ackwise.subscriber.feeds.jetstream.delivery import NATSDelivery, monotonic_micros
from ackwise.subscriber.feeds.port import DeliverySink
from ackwise.subscriber.subscription import Subscription

if TYPE_CHECKING:
    from ackwise.subscriber.feeds.jetstream.connection import NATSLink


log = logging.getLogger("ackwise.subscriber")

CHECK_EVERY = 1.0
PAUSE_AFTER_FAILURE = 1.0
FLUSH_WITHIN = 2


class NATSFeed:
    """Pulls the messages of one subscription and sends their settlements."""

    def __init__(self, link: NATSLink, subscription: Subscription) -> None:
        self._link, self._subscription = link, subscription
        self._consumer = PullConsumer(link, subscription, self)
        self._acked_first = subscription.acked_first
        # JetStream does not answer an extension. A third leaves time for a second one if the first is lost.
        keeper: AsyncLeaseKeeper[NATSDelivery] = AsyncLeaseKeeper(monotonic_micros, self._extend, fraction=1 / 3)
        self._held: HeldDeliveries[NATSDelivery, NATSDelivery] = HeldDeliveries(keeper, self._lose)
        self._sink: DeliverySink | None = None
        self._answers: deque[tuple[NATSDelivery, bytes]] = deque()
        self._wake, self._answered = asyncio.Event(), asyncio.Event()
        self._stopped, self._closed = asyncio.Event(), asyncio.Event()
        self._problem: str | None = None

    async def open(self) -> None:
        await self._consumer.bind()

    # settlements

    def wait_of(self, attempt: int) -> float | None:
        return self._consumer.wait_of(attempt)

    async def send(self, reply: str, answer: bytes) -> None:
        try:
            await self._link.client.publish(reply, answer)
        except NATSError as problem:
            raise StoreUnavailable(f"{self._link.url}: {problem}") from problem

    def send_soon(self, delivery: NATSDelivery, answer: bytes) -> None:
        self.settled(delivery)
        self._answers.append((delivery, answer))
        self._answered.set()

    def settled(self, delivery: NATSDelivery) -> None:
        self._held.forget(delivery, delivery)
        self.wake()

    def leave(self, delivery: NATSDelivery) -> None:
        if delivery.ended:
            self._held.forget(delivery, delivery)
        else:
            self._held.leave(delivery, delivery)
        self.wake()

    async def flush(self) -> None:
        while self._answers:
            delivery, answer = self._answers[0]
            await self.send(delivery.reply, answer)
            self._answers.popleft()
        if self._stopped.is_set():
            with suppress(NATSError, TimeoutError):
                await self._link.client.flush(FLUSH_WITHIN)

    async def _send_answers(self) -> None:
        while True:
            await self._answered.wait()
            self._answered.clear()
            if self._stopped.is_set():
                # The pull must be closed first, so that released messages do not come to this app again.
                await self._closed.wait()
            try:
                await self.flush()
            except StoreUnavailable as problem:
                log.warning("%s: %s; trying again", self._subscription.queue, problem)
                await asyncio.sleep(PAUSE_AFTER_FAILURE)
                self._answered.set()

    async def _extend(self, leases: Sequence[NATSDelivery]) -> list[None]:
        for delivery in leases:
            # Without a connection, nats-py would only buffer the message.
            if self._link.client.is_connected:
                with suppress(StoreUnavailable):
                    await delivery.in_progress()
        return [None] * len(leases)

    def _lose(self, delivery: NATSDelivery) -> None:
        """Mark a delivery as lost after its ack wait. JetStream delivers the message again."""
        delivery.lost = True
        self.wake()
        if self._sink is not None:
            self._sink.lost(delivery)

    # pull requests

    def wake(self) -> None:
        self._wake.set()

    def clock_moved(self) -> None:
        """Nothing to do: JetStream has its own clock."""

    def stop(self) -> None:
        self._stopped.set()
        self.wake()

    @property
    def fed(self) -> bool:
        """Whether the consumer works, as far as the app knows."""
        return self._problem is None

    def reconnected(self) -> None:
        if self._sink is not None:
            self._consumer.pull.forget()
            self.wake()

    async def run(self, sink: DeliverySink) -> None:
        self._sink = sink
        try:
            async with asyncio.TaskGroup() as group:
                answers = group.create_task(self._send_answers())
                await self._pull_messages(sink)
                await self._consumer.pull.close()
                sink.end_of_input()
                self._closed.set()
                while self._held.working:
                    # Running handlers may need time; the keeper extends their messages.
                    self._wake.clear()
                    await self._wake.wait()
                answers.cancel()
        finally:
            await self._held.keeper.close()

    async def _pull_messages(self, sink: DeliverySink) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            if self._problem is not None:
                await self._recover(self._problem)
                continue
            count = self._wanted(sink)
            if count:
                try:
                    await self._consumer.pull.request(count)
                except Exception as problem:
                    self.on_failure(str(problem) or type(problem).__name__)
                    continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), CHECK_EVERY)

    def _wanted(self, sink: DeliverySink) -> int:
        """Number of messages to request. While all workers are busy, 0 until the request is large enough."""
        working, outstanding = self._held.working, self._consumer.pull.outstanding
        room = min(sink.room, self._subscription.max_pending - len(self._held))
        count = max(0, room - outstanding)
        idle = working + outstanding < self._subscription.concurrency
        return count if idle or 4 * count >= working + room else 0

    def on_message(self, msg: Msg) -> None:
        delivery = NATSDelivery(msg, self)
        self._consumer.note(delivery.sequence)
        if self._acked_first:
            self._put(delivery)
        elif self._stopped.is_set():
            delivery.settle_soon(Outcome.RELEASE)
        else:
            self._held.hold(delivery, delivery)
            self._put(delivery)

    def _put(self, delivery: NATSDelivery) -> None:
        assert self._sink is not None
        self._sink.put(delivery)

    def on_request_end(self) -> None:
        self.wake()

    def on_failure(self, why: str) -> None:
        self._problem = why
        self.wake()

    async def _recover(self, why: str) -> None:
        """Pause, then bind the consumer again, which creates it if it is gone."""
        log.warning("%s: %s; trying again", self._subscription.queue, why)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), PAUSE_AFTER_FAILURE)
        if self._stopped.is_set():
            return
        try:
            await self.open()
        except Exception as problem:
            self.on_failure(str(problem) or type(problem).__name__)
        else:
            self._problem = None
