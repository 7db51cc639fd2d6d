"""Fed from our own broker, embedded or behind a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from secrets import token_hex

import msgspec

from ackwise.client import AsyncConnection, settling
from ackwise.client.aio import AsyncDelivery
from ackwise.client.claims import claim_command
from ackwise.core.answers import Handed, Settled
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import ByKey, Claim, Settle, Settlement, each
from ackwise.core.errors import AckwiseError, BadInput, Draining, LeaseLost, StoreError, UnknownQueue
from ackwise.core.limits import MICROS, Seconds, lease_micros
from ackwise.core.messages import DEFAULT_PARTITION, QUEUE_MODE
from ackwise.core.native.claiming import MAX_AHEAD
from ackwise.core.settlement import Outcome, Verdict
from ackwise.subscriber.feeds.feed import Sink
from ackwise.subscriber.feeds.keeping import Keeper
from ackwise.subscriber.handover import Ask, Undecodable
from ackwise.subscriber.subscription import Subscription

log = logging.getLogger("ackwise.subscriber")

POLL = 15.0
SHORTEST_POLL = 1.0
STOP_PATIENCE = 5.0
PAUSE_AFTER_FAILURE = 1.0
PAUSE_WHILE_STOPPING = 0.1
CHECK_WITHIN = 2.0


class BrokerHandover:
    """A delivery of the client, as the subscriber's message wants it."""

    __slots__ = ("_feed", "asked", "delivery", "held")

    def __init__(self, delivery: AsyncDelivery, feed: BrokerFeed) -> None:
        self.delivery, self._feed = delivery, feed
        self.held = delivery.verdict is None
        """Whether this app counts it as its own: not settled, not given up."""
        self.asked: frozenset[Outcome] = frozenset()
        """What was asked for, and nobody knows what became of that."""

    @property
    def id(self) -> str:
        return self.delivery.message_id

    @property
    def queue(self) -> str:
        return self.delivery.queue

    @property
    def body(self) -> bytes:
        return self.delivery.payload

    @property
    def headers(self) -> dict[str, str]:
        return self.delivery.headers

    @property
    def attempt(self) -> int:
        return self.delivery.attempt

    @property
    def enqueued_at(self) -> datetime:
        return self.delivery.created_at

    @property
    def deadline(self) -> datetime | None:
        return self.delivery.deadline if self.settleable else None

    @property
    def settleable(self) -> bool:
        return bool(self.delivery.lease_id)

    async def settle(self, ask: Ask) -> bool:
        transport = self._feed.connection.transport
        settlement, before, repeats = _settlement(self, ask), self.asked, transport.repeats
        self.asked = before | {settlement.outcome}
        # One at a time through the transport, which sends the acks of many callers together.
        (answer,) = await self._feed.connection.settle([settlement])
        self._feed.over(self)
        done = _is_done(answer, settlement.outcome, self.asked if transport.repeats > repeats else before)
        if not done:
            log.info("%s of %s: %s came too late (%s)", self.id, self.queue, _word(ask), answer.verdict)
        return done

    def settle_soon(self, ask: Ask) -> None:
        self._feed.settle_soon(self, ask)

    async def extend(self, duration: Seconds | None) -> bool:
        try:
            await self.delivery.extend(duration)
        except LeaseLost:
            return False
        return True

    def let_go(self) -> None:
        self._feed.keeper.leave(self)


def _settlement(handover: BrokerHandover, ask: Ask) -> Settlement:
    selector = handover.delivery.selector
    if isinstance(ask, Undecodable):
        return msgspec.structs.replace(settling.reject(selector, ask.__cause__ or ask), undecodable=True)
    return settling.asked(selector, ask)


def _is_done(answer: Settled, outcome: Outcome, asked: frozenset[Outcome]) -> bool:
    """Nobody but us settles our delivery: if we asked for this before, and for nothing else, and the answer got lost,
    `already` was ourselves. Whether it was an ack the answer to an ack says by itself."""
    if answer.verdict is not Verdict.ALREADY:
        return answer.verdict.settled
    if outcome is Outcome.ACK:
        return outcome in asked and not answer.unacked
    return asked == {outcome}


def _word(ask: Ask) -> str:
    return ask.value if isinstance(ask, Outcome) else type(ask).__name__


class BrokerFeed:
    """Claims ahead what the workers will soon want, and settles in the same turns what they have done."""

    def __init__(self, connection: AsyncConnection, subscription: Subscription) -> None:
        self.connection, self._subscription = connection, subscription
        # Who settles by hand may hold one message long after the others: each has a lease of its own then.
        self._apart = subscription.explicit or not (subscription.by_app or subscription.acked_first)
        self.keeper = Keeper(connection.transport.now, self.wake)
        self._done: list[BrokerHandover] = []
        self._asks: list[Settlement] = []
        self._sending = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stopping = False
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
        self._again: tuple[Claim, int] | None = None
        """The claims that were not answered: they may have been granted, and are asked for again."""
        self._poll_again: Claim | None = None
        # A poll that is asked again, while another server still waits for the first try, learns of what that was given
        # when it ends: well before the lease does.
        lasts = POLL if subscription.lease is None else lease_micros(subscription.lease) / MICROS / 2
        self._wait = max(SHORTEST_POLL, min(POLL, lasts))

    async def open(self) -> None:
        given = self._subscription
        said = [what for what, on in (("ephemeral=True", given.ephemeral), ("stream=", given.stream is not None)) if on]
        if said:
            raise BadInput(f"{given.name}: {' and '.join(said)} is for NATS; on our own broker leave it out")
        await self.connection.create_queue(given.queue, exist_ok=True)
        if given.retry_limit is not msgspec.UNSET or given.backoff is not msgspec.UNSET:
            await self.connection.create_group(
                given.queue, given.group or QUEUE_MODE, retry_limit=given.retry_limit, backoff=given.backoff
            )

    # settling

    def settle_soon(self, handover: BrokerHandover, ask: Ask) -> None:
        if not handover.held:
            # Its lease is lost: it is somebody else's to settle.
            return
        self._asks.append(_settlement(handover, ask))
        self._done.append(handover)
        self.wake()

    def over(self, handover: BrokerHandover) -> None:
        """It is settled, or somebody else's."""
        if handover.held:
            handover.held = False
            self.keeper.forget(handover)
            self.wake()

    async def flush(self) -> None:
        async with self._sending:
            while self._done:
                await self._turn(0)
            if self._stopping:
                await self._give_back()

    async def _give_back(self) -> None:
        """Claims that were not answered may have been granted; nobody asks for them again."""
        claims = each(*self._again) if self._again else []
        if self._poll_again is not None:
            claims.append(self._poll_again)
        keys = [ByKey(one.queue, one.key, one.group) for one in claims if one.queue and one.key]
        if keys:
            asks = [Settlement(selector=key, outcome=Outcome.RELEASE) for key in keys]
            await self.connection.transport.send(Settle(entries=asks))
        self._again = self._poll_again = None

    async def _turn(self, room: int) -> list[BrokerHandover]:
        """Settle what is done and claim up to `room`, in one turn of the broker."""
        done, asks, self._done, self._asks = self._done, self._asks, [], []
        settle = Settle(entries=asks) if asks else None
        claim, count = (self._again or self._ahead(room)) if room else (self._claim, 0)
        transport = self.connection.transport
        repeats = transport.repeats
        try:
            answers, handed = await transport.claim_ahead(settle, claim, count)
        except BaseException:
            self._done, self._asks = done + self._done, asks + self._asks
            for handover, ask in zip(done, asks, strict=True):
                handover.asked |= {ask.outcome}
            if count:
                self._again = claim, count
            raise
        if count:
            self._again = None
        for handover, ask, answer in zip(done, asks, answers, strict=True):
            handover.delivery.note(answer)
            self.over(handover)
            asked = handover.asked | {ask.outcome} if transport.repeats > repeats else handover.asked
            if not _is_done(answer, ask.outcome, asked):
                log.warning("%s of %s was settled too late (%s)", handover.id, handover.queue, answer.verdict)
        return self._handovers(handed)

    def _ahead(self, room: int) -> tuple[Claim, int]:
        """What is claimed for so much room: so many messages at once, or so many leases of one."""
        most, count = (1, min(room, MAX_AHEAD)) if self._apart else (room, 1)
        return self._keyed(msgspec.structs.replace(self._claim, most=most)), count

    def _keyed(self, claim: Claim) -> Claim:
        """Under a key of its own it may be asked for again: an answer that gets lost loses no message with it. What
        is acked at delivery has no such luck."""
        if self._subscription.acked_first:
            return claim
        self._number += 1
        return msgspec.structs.replace(claim, key=f"{self._name}/{self._number}")

    def _handovers(self, handed: Iterable[Handed]) -> list[BrokerHandover]:
        # Without the key: what this connection holds when it is closed goes back.
        batches = [self.connection.batch(one, self._claim) for one in handed]
        found = [BrokerHandover(delivery, self) for batch in batches for delivery in batch]
        for handover in found:
            if handover.settleable:
                self.keeper.hold(handover, handover.delivery.lease)
        return found

    # taking

    async def take(self, most: int) -> Sequence[BrokerHandover]:
        async with self._sending:
            return await self._turn(most)

    def wake(self) -> None:
        self._wake.set()

    def look(self) -> None:
        self.keeper.look()

    def stop(self) -> None:
        self._stopping = True
        self.wake()

    async def run(self, sink: Sink) -> None:
        keeping = asyncio.create_task(self.keeper.run(sink.lost), name="ackwise-keep-alive")
        poll: asyncio.Task[Handed] | None = None
        try:
            while not (self._stopping and poll is None and sink.over):
                self._wake.clear()
                if self._stopping and poll is None:
                    sink.no_more()
                try:
                    if poll is not None and (poll.done() or self._stopping):
                        over, poll = poll, None
                        await self._polled(over, sink)
                        continue
                    room = 0 if self._stopping or poll is not None else self._room(sink)
                    if not room:
                        await self.flush()
                    elif self._poll_again is not None or not self._put(await self.take(room), sink):
                        poll = asyncio.create_task(self._poll(), name="ackwise-poll")
                        poll.add_done_callback(lambda _: self.wake())
                    else:
                        # Let the workers begin before the next turn is asked for.
                        await asyncio.sleep(0)
                        continue
                except AckwiseError as problem:
                    await self._complain(problem)
                    continue
                if not self._done:
                    await self._wake.wait()
        finally:
            if poll is not None:
                poll.cancel()
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping

    def _room(self, sink: Sink) -> int:
        return max(0, min(sink.room, self._subscription.max_pending - len(self.keeper)))

    def _put(self, found: Sequence[BrokerHandover], sink: Sink) -> int:
        for handover in found:
            sink.put(handover)
        return len(found)

    async def _poll(self) -> Handed:
        claim = self._poll_again = self._poll_again or self._keyed(self._claim)
        handed = await self.connection.transport.claim(claim, self._wait)
        if handed.claimed.empty is EmptyReason.ENDED:
            # An earlier try of the same poll may still have waited somewhere, and was given something.
            handed = await self.connection.transport.claim(claim, 0.0)
        self._poll_again = None
        return handed

    async def _polled(self, poll: asyncio.Task[Handed], sink: Sink) -> None:
        """What a poll brought. When the app stops it is called back by the link, and what it was given goes back, as
        far as it can."""
        try:
            handed = await asyncio.wait_for(poll, STOP_PATIENCE)
        except TimeoutError:
            return
        found = self._handovers([handed])
        if self._stopping and not self._subscription.acked_first:
            for handover in found:
                handover.settle_soon(Outcome.RELEASE)
            await self.flush()
            return
        self._put(found, sink)
        if not found and handed.claimed.empty in (EmptyReason.DRAINING, EmptyReason.UNAVAILABLE):
            await self._pause()

    async def _complain(self, problem: AckwiseError) -> None:
        if isinstance(problem, UnknownQueue):
            # Somebody deleted it: as when the app was started, it is made.
            with suppress(StoreError):
                await self.open()
        if not (isinstance(problem, Draining) and self._stopping):
            log.warning("%s: %s; trying again", self._subscription.queue, problem)
        await self._pause()

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
    """A connection of the client."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection
        self.ready = True

    def feed(self, subscription: Subscription) -> BrokerFeed:
        return BrokerFeed(self.connection, subscription)

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
