"""Pull requests to JetStream."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import Protocol

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NATSError

EXPIRES = 10.0
"""Seconds after which JetStream ends an unfilled request with a status message."""
HEARTBEAT = 1.0
"""Seconds between JetStream's heartbeats for an unfilled request."""
SILENCE = 4.0
"""Seconds of silence after which the server is assumed to have forgotten all requests."""
CLOSE_WITHIN = 2.0
MOST_REQUESTS = 16
"""Most requests at a time, if an operator bounds the batch of a request."""
INFO_WITHIN = 5.0
INFO = "$JS.API.CONSUMER.INFO"
NEXT = "$JS.API.CONSUMER.MSG.NEXT"
_ENDED, _ALIVE, _NO_RESPONDER = "408", "100", "503"


class PullListener(Protocol):
    """Receives the messages and errors of pull requests."""

    def on_message(self, msg: Msg) -> None: ...

    def on_request_end(self) -> None:
        """Called when a request ends before it is filled. A new request may be due."""
        ...

    def on_failure(self, why: str) -> None: ...


class Bounds(msgspec.Struct):
    """Limits of a pull request that an operator may set on a consumer. nats-py lacks them. 0 means no limit."""

    max_batch: int = 0
    max_expires: int = 0
    """In nanoseconds."""


class _Info(msgspec.Struct):
    config: Bounds


class PullRequests:
    """Pull requests with an inbox of their own.

    Each message reduces the outstanding count. The end of a request reports the number of missing messages.

    nats-py's `fetch` is not used: it cannot end a request when the app stops. A message of such a request would
    wait for the end of its ack wait.
    """

    def __init__(self, client: Client, stream: str, consumer: str, listener: PullListener) -> None:
        self._client, self._listener = client, listener
        self._name = f"{stream}.{consumer}"
        self._inbox = client.new_inbox()
        self._inbox_subscription: Subscription | None = None
        self._requests: deque[list[float]] = deque()
        self._last_heard_at = 0.0
        self._bounds = Bounds()
        self._expires = EXPIRES

    async def open(self) -> None:
        with suppress(msgspec.ValidationError, NATSError):
            # The consumer may be gone or the info forbidden: the first request will show it.
            info = await self._client.request(f"{INFO}.{self._name}", timeout=INFO_WITHIN)
            self._bounds = msgspec.json.decode(info.data, type=_Info).config
        self._expires = min(EXPIRES, self._bounds.max_expires / 1e9 or EXPIRES)
        # No limit on pending bytes: the requests bound the messages.
        self._inbox_subscription = await self._client.subscribe(self._inbox, cb=self._receive, pending_bytes_limit=0)

    async def request(self, count: int) -> None:
        """Request `count` messages, or as many as the operator's limit allows. Call again for more."""
        most = self._bounds.max_batch or count
        while count > 0 and (most >= count or len(self._requests) < MOST_REQUESTS):
            await self._request_once(min(count, most))
            count -= most

    async def _request_once(self, count: int) -> None:
        now = time.monotonic()
        if not self._requests:
            self._last_heard_at = now
        self._requests.append([now + self._expires + SILENCE, count])
        beat = min(HEARTBEAT, self._expires / 4)
        request = {"batch": count, "expires": int(self._expires * 1e9), "idle_heartbeat": int(beat * 1e9)}
        await self._client.publish(f"{NEXT}.{self._name}", msgspec.json.encode(request), reply=self._inbox)

    @property
    def outstanding(self) -> int:
        """Number of requested messages that may still come."""
        now = time.monotonic()
        if now > self._last_heard_at + SILENCE:
            self.forget()
        while self._requests and self._requests[0][0] <= now:
            self._requests.popleft()
        return sum(int(count) for _, count in self._requests)

    def forget(self) -> None:
        """Drop all requests: the server does not answer them any more."""
        self._requests.clear()

    async def _receive(self, msg: Msg) -> None:
        self._last_heard_at = time.monotonic()
        if msg.reply:
            self._deduct(1)
            self._listener.on_message(msg)
            return
        headers = msg.headers or {}
        status = headers.get("Status", "")
        if status == _ENDED:
            self._deduct(int(headers.get("Nats-Pending-Messages", "0")))
            self._listener.on_request_end()
        elif status != _ALIVE:
            self.forget()
            # Without a responder, nats-py's description is misleading.
            described = "" if status == _NO_RESPONDER else headers.get("Description", "")
            self._listener.on_failure(described or f"there is no consumer {self._name}")

    def _deduct(self, count: int) -> None:
        while count > 0 and self._requests:
            oldest = self._requests[0]
            taken = min(count, int(oldest[1]))
            oldest[1] -= taken
            count -= taken
            if not oldest[1]:
                self._requests.popleft()

    async def close(self) -> None:
        """Unsubscribe from the inbox. Messages on their way arrive before `close` returns."""
        if self._inbox_subscription is not None:
            subscription, self._inbox_subscription = self._inbox_subscription, None
            with suppress(NATSError, TimeoutError):
                await asyncio.wait_for(subscription.drain(), CLOSE_WITHIN)  # type: ignore[no-untyped-call]
