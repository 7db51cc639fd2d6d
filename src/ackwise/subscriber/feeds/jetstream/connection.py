"""Link to NATS."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NATSError
from nats.js.api import PubAck
from nats.js.errors import NoStreamResponseError, NotFoundError

from ackwise.connect import URL
from ackwise.core.errors import BadInput, StoreUnavailable
from ackwise.core.validation import Seconds
from ackwise.subscriber.dead_letter_hooks import DeadLetterHook, OnDead
from ackwise.subscriber.feeds.jetstream.errors import refused, unavailable
from ackwise.subscriber.feeds.jetstream.feed import NATSFeed
from ackwise.subscriber.subscription import Subscription
from ackwise.wire.store_url import without_password

log = logging.getLogger("ackwise.subscriber")

CONNECT_WITHIN = 2


class NATSLink:
    """Link to NATS: a connection of nats-py."""

    makes_spans = False

    def __init__(self, url: str) -> None:
        self.url, self.client = url, Client()
        self.js = self.client.jetstream()
        self._feeds: list[NATSFeed] = []

    @classmethod
    async def open(cls, url: URL) -> NATSLink:
        """Connect to the first server that answers. Several URLs are a list, or one text with commas."""
        servers = url.split(",") if isinstance(url, str) else list(url)
        masked = ", ".join(map(without_password, servers))
        link = cls(masked)
        try:
            async with asyncio.timeout(CONNECT_WITHIN * len(servers)):
                await link.client.connect(
                    servers,
                    max_reconnect_attempts=-1,
                    connect_timeout=CONNECT_WITHIN,
                    error_cb=_log_error,
                    disconnected_cb=link._disconnected,
                    reconnected_cb=link._reconnected,
                )
        except (NATSError, OSError, TimeoutError) as problem:
            why = str(problem) or "no answer"
            raise StoreUnavailable(f"no NATS server answers at {masked}: {why}") from None
        except ValueError as problem:
            raise BadInput(f"{masked}: {problem}") from None
        return link

    async def _disconnected(self) -> None:
        if not self.client.is_closed:
            log.warning("connection to %s lost; trying again", self.url)

    async def _reconnected(self) -> None:
        log.info("connection to %s is back", self.url)
        for feed in self._feeds:
            feed.reconnected()

    def dead_letter_hook(self, queue: str, name: str, function: OnDead) -> DeadLetterHook:
        raise BadInput(f"on_dead of {queue!r} needs a store or server of Ackwise: NATS keeps no dead letters")

    def feed(self, subscription: Subscription) -> NATSFeed:
        feed = NATSFeed(self, subscription)
        self._feeds.append(feed)
        return feed

    async def stream_of(self, subject: str, name: str | None) -> str:
        """The stream of a subject. If there is none, it is created and named after the subject."""
        with refused(self.url, f"JetStream refused a stream for {subject}"):
            if name is None:
                streams = await self._streams_of(subject)
                if len(streams) > 1:
                    raise BadInput(f"{subject} is in the streams {', '.join(streams)}; choose one with stream=")
                if streams:
                    return streams[0]
                name = re.sub(r"[^A-Za-z0-9_-]", "_", subject)
            else:
                with suppress(NotFoundError):
                    await self.js.stream_info(name)
                    return name
            await self.js.add_stream(name=name, subjects=[subject])
        return name

    async def _streams_of(self, subject: str) -> list[str]:
        request = json.dumps({"subject": subject}).encode()
        answer = json.loads((await self.client.request("$JS.API.STREAM.NAMES", request, timeout=5)).data)
        return answer.get("streams") or []

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
            raise BadInput("JetStream has no delayed messages and no partitions; publish without delay and partition")
        all_headers: dict[str, Any] = {**headers, "content-type": content_type}
        if dedup_id is not None:
            all_headers["Nats-Msg-Id"] = dedup_id
        try:
            ack = await self._stored(queue, body, all_headers)
        except NATSError as problem:
            raise unavailable(self.url, problem) or StoreUnavailable(f"{self.url}: {problem}") from problem
        return f"{ack.stream}.{ack.seq}"

    async def _stored(self, queue: str, body: bytes, headers: dict[str, Any]) -> PubAck:
        try:
            return await self.js.publish(queue, body, headers=headers)
        except NoStreamResponseError:
            await self.stream_of(queue, None)
            return await self.js.publish(queue, body, headers=headers)

    @property
    def ready(self) -> bool:
        return bool(self.client.is_connected)

    async def check(self) -> bool:
        return self.ready and all(feed.fed for feed in self._feeds)

    async def stop_claims(self) -> None:
        """Nothing to do: each feed ends its pull requests when it stops."""

    async def close(self) -> None:
        with suppress(NATSError):
            await self.client.close()


async def _log_error(problem: Exception) -> None:
    log.warning("NATS: %s", str(problem) or type(problem).__name__)
