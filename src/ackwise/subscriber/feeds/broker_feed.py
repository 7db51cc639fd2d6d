"""Feed from Ackwise, embedded or behind a server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from secrets import token_hex

import msgspec

from ackwise.client import AsyncConnection
from ackwise.client.aio.lease import AsyncLease
from ackwise.client.aio.lease_keeper import AsyncLeaseKeeper, extend_all
from ackwise.client.options import claim_command
from ackwise.core.answers import Handed
from ackwise.core.commands import ByKey, Claim, Settle, Settlement, copies_of
from ackwise.core.errors import AckwiseError, BadInput, Draining, StoreError, UnknownQueue
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.messages import DEFAULT_PARTITION, QUEUE_MODE
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS, Seconds, lease_micros
from ackwise.observability.debug_log import debug_records
from ackwise.subscriber.dead_letter_hooks import DeadLetterHook, OnDead
from ackwise.subscriber.feeds.broker_delivery import BrokerDelivery, is_done, log_next_attempt, settlement_of
from ackwise.subscriber.feeds.held_deliveries import HeldDeliveries
from ackwise.subscriber.feeds.port import DeliverySink
from ackwise.subscriber.subscription import Subscription
from ackwise.subscriber.transport_delivery import Ask
from ackwise.wire.claim import MAX_AHEAD
from ackwise.wire.store_url import without_password

log = logging.getLogger("ackwise.subscriber")

POLL = 15.0
SHORTEST_POLL = 1.0
STOP_PATIENCE = 5.0
PAUSE_AFTER_FAILURE = 1.0
PAUSE_WHILE_STOPPING = 0.1
CHECK_WITHIN = 2.0


_FAILURES = (Outcome.RETRY, Outcome.REJECT)


class BrokerFeed:
    """Claims messages ahead of the workers, and settles finished messages in the same turns."""

    def __init__(self, connection: AsyncConnection, subscription: Subscription) -> None:
        self.connection, self._subscription = connection, subscription
        # A handler that settles its messages itself may hold one for long. Then each message gets its own lease.
        self._single_leases = subscription.explicit or not (subscription.by_app or subscription.acked_first)
        transport = connection.transport
        keeper = AsyncLeaseKeeper(transport.now, partial(extend_all, transport))
        self.held: HeldDeliveries[AsyncLease, BrokerDelivery] = HeldDeliveries(keeper, self._lose)
        self._sink: DeliverySink | None = None
        self._done: list[BrokerDelivery] = []
        self._entries: list[Settlement] = []
        self._sending = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stopping = False
        self._lost: tuple[float, str] | None = None
        """Since when the feed fails, and its last error."""
        self._claim = claim_command(
            subscription.queue,
            group=subscription.group,
            max=1,
            lease=subscription.lease,
            partitions=None,
            priorities=None,
            exclusivity=None,
            order=None,
            owner=None,
            start="all",
            auto_ack=subscription.acked_first,
        )
        self._name, self._number = token_hex(8), 0
        self._unanswered: tuple[Claim, int] | None = None
        """Claims without an answer. The server may have granted them, so the feed repeats them."""
        self._unanswered_poll: Claim | None = None
        self._poll_task: asyncio.Task[Handed] | None = None
        # After a lost answer, the first try of a poll may still wait on another server and be granted messages. The
        # repeated poll learns of them when its own wait ends, which must be well before the lease expires.
        half_lease = POLL if subscription.lease is None else lease_micros(subscription.lease) / MICROS / 2
        self._wait = max(SHORTEST_POLL, min(POLL, half_lease))

    async def open(self) -> None:
        subscription = self._subscription
        options = [
            what
            for what, on in (("ephemeral=True", subscription.ephemeral), ("stream=", subscription.stream is not None))
            if on
        ]
        if options:
            raise BadInput(f"{subscription.name}: {' and '.join(options)} is for NATS only; leave it out")
        await self.connection.create_queue(subscription.queue, exist_ok=True)
        if subscription.retry_limit is not msgspec.UNSET or subscription.backoff is not msgspec.UNSET:
            await self.connection.create_group(
                subscription.queue,
                subscription.group or QUEUE_MODE,
                retry_limit=subscription.retry_limit,
                backoff=subscription.backoff,
            )

    # settlements

    def settle_soon(self, delivery: BrokerDelivery, ask: Ask) -> None:
        if not delivery.held:
            # The lease is lost: the message belongs to another consumer.
            return
        self._entries.append(settlement_of(delivery, ask))
        self._done.append(delivery)
        self.wake()

    def settled(self, delivery: BrokerDelivery) -> None:
        """Forget a delivery that is settled or lost."""
        if delivery.held:
            delivery.held = False
            self.held.forget(delivery, delivery.client_delivery.lease)
            self.wake()

    def _lose(self, delivery: BrokerDelivery) -> None:
        delivery.held = False
        self.wake()
        if self._sink is not None:
            self._sink.lost(delivery)

    async def flush(self) -> None:
        async with self._sending:
            while self._done:
                await self._turn(0)
            if self._stopping:
                await self._release_unanswered()

    async def _release_unanswered(self) -> None:
        """Release the claims without an answer, because the feed does not repeat them."""
        claims = copies_of(*self._unanswered) if self._unanswered else []
        if self._unanswered_poll is not None:
            claims.append(self._unanswered_poll)
        keys = [ByKey(claim.queue, claim.key, claim.group) for claim in claims if claim.queue and claim.key]
        if keys:
            entries = [Settlement(selector=key, outcome=Outcome.RELEASE) for key in keys]
            await self.connection.transport.send(Settle(entries=entries))
        self._unanswered = self._unanswered_poll = None

    async def _turn(self, room: int) -> list[BrokerDelivery]:
        """Settle finished deliveries and claim up to `room` messages, in one turn of the broker."""
        done, entries, self._done, self._entries = self._done, self._entries, [], []
        settle = Settle(entries=entries) if entries else None
        claim, count = (self._unanswered or self._claim_for(room)) if room else (self._claim, 0)
        transport = self.connection.transport
        repeats = transport.repeats
        try:
            answers, handed = await transport.claim_ahead(settle, claim, count)
        except BaseException:
            self._done, self._entries = done + self._done, entries + self._entries
            for delivery, entry in zip(done, entries, strict=True):
                delivery.attempted |= {entry.outcome}
            if count:
                self._unanswered = claim, count
            raise
        if count:
            self._unanswered = None
        self._log_turn("settled", done)
        for delivery, entry, answer in zip(done, entries, answers, strict=True):
            delivery.client_delivery.note(answer)
            self.settled(delivery)
            attempted = delivery.attempted | {entry.outcome} if transport.repeats > repeats else delivery.attempted
            if not is_done(answer, entry.outcome, attempted):
                log.warning("%s of %s was settled too late (%s)", delivery.id, delivery.queue, answer.verdict)
            elif entry.outcome in _FAILURES:
                log_next_attempt(delivery, answer)
        return self._deliveries(handed)

    def _claim_for(self, room: int) -> tuple[Claim, int]:
        """The claim for `room` messages, and its count: one batch, or that many leases of one message."""
        most, count = (1, min(room, MAX_AHEAD)) if self._single_leases else (room, 1)
        return self._with_key(msgspec.structs.replace(self._claim, most=most)), count

    def _with_key(self, claim: Claim) -> Claim:
        """The claim with a key of its own, so that it can be repeated after a lost answer.

        A claim that acks at delivery has no key: if its answer is lost, its messages are lost.
        """
        if self._subscription.acked_first:
            return claim
        self._number += 1
        return msgspec.structs.replace(claim, key=f"{self._name}/{self._number}")

    def _deliveries(self, handed: Iterable[Handed]) -> list[BrokerDelivery]:
        # The batches are built without the key, so that `close` releases their messages.
        batches = [self.connection.batch(claimed, self._claim) for claimed in handed]
        deliveries = [BrokerDelivery(client_delivery, self) for batch in batches for client_delivery in batch]
        self._log_turn("claimed", deliveries)
        for delivery in deliveries:
            if delivery.settleable:
                self.held.hold(delivery, delivery.client_delivery.lease)
        return deliveries

    def _log_turn(self, message: str, deliveries: Sequence[BrokerDelivery]) -> None:
        if deliveries:
            debug_records.write(log, message, queue=self._subscription.queue, messages=len(deliveries))

    # claims

    async def take(self, most: int) -> Sequence[BrokerDelivery]:
        async with self._sending:
            return await self._turn(most)

    def wake(self) -> None:
        self._wake.set()

    def clock_moved(self) -> None:
        self.held.keeper.check_soon()

    def stop(self) -> None:
        self._stopping = True
        self.wake()

    async def run(self, sink: DeliverySink) -> None:
        self._sink = sink
        try:
            while not (self._stopping and self._poll_task is None and sink.over):
                self._wake.clear()
                if self._stopping and self._poll_task is None:
                    sink.end_of_input()
                try:
                    idle = await self._step(sink)
                    self._note_back()
                except AckwiseError as problem:
                    await self._recover(problem)
                    idle = False
                if idle and not self._done:
                    await self._wake.wait()
        finally:
            if self._poll_task is not None:
                self._poll_task.cancel()
            await self.held.keeper.close()

    async def _step(self, sink: DeliverySink) -> bool:
        """Finish a poll, claim, or start a poll. True if nothing more is due before the next wake-up."""
        poll = self._poll_task
        if poll is not None and (poll.done() or self._stopping):
            self._poll_task = None
            await self._polled(poll, sink)
            return False
        room = 0 if self._stopping or poll is not None else self._room(sink)
        if not room:
            await self.flush()
            return True
        if self._unanswered_poll is None and self._put(await self.take(room), sink):
            # Let the workers start before the next turn.
            await asyncio.sleep(0)
            return False
        self._poll_task = asyncio.create_task(self._poll(), name="ackwise-poll")
        self._poll_task.add_done_callback(lambda _: self.wake())
        return True

    def _room(self, sink: DeliverySink) -> int:
        return max(0, min(sink.room, self._subscription.max_pending - len(self.held)))

    def _put(self, deliveries: Sequence[BrokerDelivery], sink: DeliverySink) -> int:
        for delivery in deliveries:
            sink.put(delivery)
        return len(deliveries)

    async def _poll(self) -> Handed:
        claim = self._unanswered_poll = self._unanswered_poll or self._with_key(self._claim)
        handed = await self.connection.transport.claim(claim, self._wait)
        if handed.claimed.empty is EmptyReason.ENDED:
            # An earlier try of this poll may still have waited on a server, and its messages are granted.
            handed = await self.connection.transport.claim(claim, 0.0)
        self._unanswered_poll = None
        return handed

    async def _polled(self, poll: asyncio.Task[Handed], sink: DeliverySink) -> None:
        """Pass on the result of a poll. While the app stops, release its messages."""
        try:
            handed = await asyncio.wait_for(poll, STOP_PATIENCE)
        except TimeoutError:
            return
        deliveries = self._deliveries([handed])
        if self._stopping and not self._subscription.acked_first:
            for delivery in deliveries:
                delivery.settle_soon(Outcome.RELEASE)
            await self.flush()
            return
        self._put(deliveries, sink)
        if not deliveries and handed.claimed.empty in (EmptyReason.DRAINING, EmptyReason.UNAVAILABLE):
            await self._pause()

    async def _recover(self, problem: AckwiseError) -> None:
        if isinstance(problem, UnknownQueue):
            # The queue was deleted meanwhile: create it again.
            with suppress(StoreError):
                await self.open()
        if not (isinstance(problem, Draining) and self._stopping):
            self._note_lost(problem)
        await self._pause()

    def _note_lost(self, problem: AckwiseError) -> None:
        """Log a failure. Further tries with the same error are logged only at debug level."""
        text = without_password(str(problem))
        known = self._lost is not None and self._lost[1] == text
        log.log(logging.DEBUG if known else logging.WARNING, "%s: %s; trying again", self._subscription.queue, text)
        self._lost = (time.monotonic() if self._lost is None else self._lost[0], text)

    def _note_back(self) -> None:
        if self._lost is not None:
            lost_at, self._lost = self._lost[0], None
            log.info("%s: works again after %.1f s", self._subscription.queue, time.monotonic() - lost_at)

    async def _pause(self) -> None:
        if self._stopping:
            await asyncio.sleep(PAUSE_WHILE_STOPPING)
            return
        self._wake.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped(), PAUSE_AFTER_FAILURE)

    async def _stopped(self) -> None:
        while not self._stopping:
            await self._wake.wait()
            self._wake.clear()


class BrokerLink:
    """Link to Ackwise: a connection of the client."""

    makes_spans = True

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection
        self.ready = True

    def feed(self, subscription: Subscription) -> BrokerFeed:
        return BrokerFeed(self.connection, subscription)

    def dead_letter_hook(self, queue: str, name: str, function: OnDead) -> DeadLetterHook:
        return DeadLetterHook(self.connection, queue, name, function)

    async def publish(
        self,
        queue: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        content_type: str,
        dedup_id: str | None,
        delay: Seconds | None,
        partition: str | None,
    ) -> str:
        receipt = await self.connection.push(
            queue,
            msgspec.Raw(body) if content_type.startswith("application/json") else body,
            partition=partition or DEFAULT_PARTITION,
            transaction_id=dedup_id,
            headers=headers,
            delay=delay,
            content_type=content_type,
        )
        return receipt.message_id

    async def check(self) -> bool:
        try:
            async with asyncio.timeout(CHECK_WITHIN):
                await self.connection.queues(namespace="ackwise.health")
        except (AckwiseError, TimeoutError):
            self.ready = False
        else:
            self.ready = True
        return self.ready

    async def stop_claims(self) -> None:
        stopping = self.connection.transport.stop_claims()
        if stopping is not None:
            await stopping

    async def close(self) -> None:
        await self.connection.close()
