"""Fed from NATS JetStream. Settlements are passed straight through; what they mean there, JetStream decides."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NATSError
from nats.errors import TimeoutError as NothingCame
from nats.js import JetStreamContext, api
from nats.js.errors import NotFoundError

from ackwise.core import limits
from ackwise.core.errors import BadInput, StoreUnavailable
from ackwise.core.limits import MICROS, Seconds, lease_micros
from ackwise.core.outcomes import Reject, Retry
from ackwise.core.settlement import Outcome
from ackwise.subscriber.feeds.feed import Sink
from ackwise.subscriber.handover import Ask, Undecodable
from ackwise.subscriber.subscription import Subscription

log = logging.getLogger("ackwise.subscriber")

ACK_WAIT = 30.0
CONNECT_WITHIN = 2.0
POLL = 0.5
"""A pull that is on its way when the app stops is waited for so long: what it brings is not lost."""
GONE_AFTER = 60.0
"""An ephemeral consumer is forgotten by the server when nobody asked for so long."""


class NATSHandover:
    """A message of JetStream, as the subscriber's message wants it."""

    __slots__ = ("_feed", "_got", "_msg", "_seen")

    def __init__(self, msg: Msg, feed: NATSFeed) -> None:
        self._msg, self._feed, self._got = msg, feed, datetime.now(UTC)
        self._seen = msg.metadata

    @property
    def id(self) -> str:
        return f"{self._seen.stream}.{self._seen.sequence.stream}"

    @property
    def queue(self) -> str:
        return self._msg.subject

    @property
    def body(self) -> bytes:
        return self._msg.data

    @property
    def headers(self) -> dict[str, str]:
        return dict(self._msg.headers or {})

    @property
    def attempt(self) -> int:
        return self._seen.num_delivered

    @property
    def enqueued_at(self) -> datetime:
        return self._seen.timestamp

    @property
    def deadline(self) -> datetime | None:
        """As far as this side knows."""
        return None if self._feed.acked_first else self._got + timedelta(seconds=self._feed.ack_wait)

    @property
    def settleable(self) -> bool:
        """JetStream refuses nothing, and tells nobody."""
        return True

    async def settle(self, ask: Ask) -> bool:
        await self._feed.answer(self._msg, ask)
        self._feed.over(self)
        return True

    def settle_soon(self, ask: Ask) -> None:
        self._feed.settle_soon(self, ask)

    async def extend(self, duration: Seconds | None) -> bool:
        """JetStream extends by the consumer's own ack wait, whatever is asked for."""
        if duration is not None:
            lease_micros(duration)
        await self.in_progress()
        return True

    async def in_progress(self) -> None:
        await self._msg.in_progress()
        self._got = datetime.now(UTC)

    @property
    def msg(self) -> Msg:
        return self._msg

    def let_go(self) -> None:
        self._feed.working.discard(self)


class NATSFeed:
    """A pull consumer: durable where it has a name, else ephemeral."""

    def __init__(self, link: NATSLink, subscription: Subscription) -> None:
        self._link, self._subscription = link, subscription
        lease = subscription.lease
        self.ack_wait = ACK_WAIT if lease is None else lease_micros(lease) / MICROS
        self.acked_first = subscription.acked_first
        self.working: set[NATSHandover] = set()
        self._unsettled: dict[NATSHandover, float] = {}
        self._done: list[tuple[NATSHandover, Ask]] = []
        self._pull: JetStreamContext.PullSubscription | None = None
        self._wake, self._settled = asyncio.Event(), asyncio.Event()
        self._stopping = False

    async def open(self) -> None:
        given = self._subscription
        stream = await self._link.stream_of(given.queue, given.stream)
        try:
            self._pull = await self._link.js.pull_subscribe(
                given.queue, durable=given.group, stream=stream, config=self._config()
            )
        except NATSError as problem:
            raise BadInput(f"{given.name}: JetStream refused its consumer: {problem}") from problem

    def _config(self) -> api.ConsumerConfig:
        given = self._subscription
        config = api.ConsumerConfig(
            ack_policy=api.AckPolicy.NONE if self.acked_first else api.AckPolicy.EXPLICIT,
            max_ack_pending=None if self.acked_first else given.max_pending,
            ack_wait=self.ack_wait,
        )
        if given.group is None:
            config.inactive_threshold = GONE_AFTER
        if isinstance(given.retry_limit, int):
            config.max_deliver = max(1, given.retry_limit)
        if given.backoff is not msgspec.UNSET and not self.acked_first:
            delays = list(given.backoff.delays)
            # JetStream wants more deliveries than steps.
            steps = delays if config.max_deliver is None else delays[: config.max_deliver - 1]
            config.backoff = steps or None
        return config

    # settling

    async def answer(self, msg: Msg, ask: Ask) -> None:
        """Straight through: nats-py would raise at a repeat, and the message above it never repeats."""
        try:
            match ask:
                case Outcome.ACK:
                    await msg.ack()
                case Undecodable():
                    await self._terminate(msg, f"undecodable: {ask}")
                case Reject():
                    await self._terminate(msg, str(ask.reason))
                case Retry() if ask.delay is not None:
                    await msg.nak(limits.micros(ask.delay, "delay") / MICROS)
                case _:
                    await msg.nak()
        except NATSError as problem:
            raise StoreUnavailable(f"{self._link.url}: {problem}") from problem

    async def _terminate(self, msg: Msg, reason: str) -> None:
        """With the text, which the advisory repeats."""
        text = " ".join(reason.split())[:1000]
        await self._link.client.publish(msg.reply, f"+TERM {text}".encode())

    def settle_soon(self, handover: NATSHandover, ask: Ask) -> None:
        self._done.append((handover, ask))
        self._settled.set()

    def over(self, handover: NATSHandover) -> None:
        self.working.discard(handover)
        self._unsettled.pop(handover, None)
        self.wake()

    async def flush(self) -> None:
        while self._done:
            done, self._done = self._done, []
            for at, (handover, ask) in enumerate(done):
                try:
                    await self.answer(handover.msg, ask)
                except BaseException:
                    self._done = done[at:] + self._done
                    raise
                self.over(handover)
        if self._stopping:
            with suppress(NATSError):
                await self._link.client.flush()

    async def _settling(self) -> None:
        while True:
            await self._settled.wait()
            self._settled.clear()
            try:
                await self.flush()
            except StoreUnavailable as problem:
                log.warning("%s: %s; trying again", self._subscription.queue, problem)
                await asyncio.sleep(1.0)
                self._settled.set()

    async def _keeping(self) -> None:
        while True:
            await asyncio.sleep(self.ack_wait / 3)
            for handover in list(self.working):
                with suppress(NATSError):
                    await handover.in_progress()

    # taking

    def wake(self) -> None:
        self._wake.set()

    def look(self) -> None:
        """JetStream has its own clock."""

    def stop(self) -> None:
        self._stopping = True
        self.wake()

    async def take(self, most: int) -> Sequence[NATSHandover]:
        return await self._fetch(most, POLL)

    async def _fetch(self, most: int, wait: float) -> list[NATSHandover]:
        assert self._pull is not None
        try:
            found = [NATSHandover(msg, self) for msg in await self._pull.fetch(most, timeout=wait)]
        except NothingCame:
            return []
        if not self.acked_first:
            until = asyncio.get_running_loop().time() + self.ack_wait
            self.working.update(found)
            self._unsettled.update(dict.fromkeys(found, until))
        return found

    def _room(self, sink: Sink) -> int:
        now = asyncio.get_running_loop().time()
        for handover in [one for one, until in self._unsettled.items() if until <= now and one not in self.working]:
            del self._unsettled[handover]
        return max(0, min(sink.room, self._subscription.max_pending - len(self._unsettled)))

    def _put(self, found: Sequence[NATSHandover], sink: Sink) -> None:
        for handover in found:
            if self._stopping:
                handover.settle_soon(Outcome.RELEASE)
            else:
                sink.put(handover)

    async def run(self, sink: Sink) -> None:
        beside = [asyncio.create_task(self._settling())]
        if not self.acked_first:
            beside.append(asyncio.create_task(self._keeping()))
        try:
            while not self._stopping:
                self._wake.clear()
                room = self._room(sink)
                if not room:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), 1.0)
                    continue
                try:
                    found = await self._fetch(room, POLL)
                except NATSError as problem:
                    log.warning("%s: %s; trying again", self._subscription.queue, problem)
                    await asyncio.sleep(1.0)
                    continue
                self._put(found, sink)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)


class NATSLink:
    """A connection of nats-py."""

    def __init__(self, url: str, client: Client) -> None:
        self.url, self.client = url, client
        self.js = client.jetstream()
        self._streams: dict[str, str] = {}

    @classmethod
    async def open(cls, url: str) -> NATSLink:
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                client = await nats.connect(url, max_reconnect_attempts=-1, error_cb=_complain)
        except (NATSError, OSError, TimeoutError) as problem:
            why = str(problem) or "no answer"
            raise StoreUnavailable(f"no NATS server answers at {url}: {why}") from None
        return cls(url, client)

    def feed(self, subscription: Subscription) -> NATSFeed:
        return NATSFeed(self, subscription)

    async def stream_of(self, subject: str, named: str | None) -> str:
        """The stream that takes a subject; where there is none it is made, and named after it."""
        known = self._streams.get(subject)
        if known is not None:
            return known
        try:
            if named is not None:
                await self.js.stream_info(named)
                found = named
            else:
                found = await self.js.find_stream_name_by_subject(subject)
        except NotFoundError:
            found = named or re.sub(r"[^A-Za-z0-9_-]", "_", subject)
            await self.js.add_stream(name=found, subjects=[subject])
        self._streams[subject] = found
        return found

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
        if delay is not None or partition is not None:
            raise BadInput("JetStream has no delayed messages and no partitions: publish without delay and partition")
        stream = await self.stream_of(queue, None)
        told: dict[str, Any] = {**headers, "content-type": content_type}
        if dedup_id is not None:
            told["Nats-Msg-Id"] = dedup_id
        try:
            done = await self.js.publish(queue, body, stream=stream, headers=told)
        except NATSError as problem:
            raise StoreUnavailable(f"{self.url}: {problem}") from problem
        return f"{done.stream}.{done.seq}"

    @property
    def ready(self) -> bool:
        return bool(self.client.is_connected)

    async def check(self) -> bool:
        return self.ready

    async def stop_claims(self) -> None:
        """A pull is short: it is waited for."""

    async def close(self) -> None:
        with suppress(NATSError):
            await self.client.close()


async def _complain(problem: Exception) -> None:
    log.warning("NATS: %s", str(problem) or type(problem).__name__)
