"""Asking a consumer for messages."""

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
"""An ask that is not filled ends after so many seconds, and JetStream says so."""
HEARTBEAT = 1.0
"""While it is not, JetStream lets hear of itself so often."""
SILENCE = 4.0
"""Who was not heard for so long does not know of any ask."""
CLOSE_WITHIN = 2.0
MOST_ASKS = 16
"""At once, where an operator bounds each."""
INFO_WITHIN = 5.0
INFO = "$JS.API.CONSUMER.INFO"
NEXT = "$JS.API.CONSUMER.MSG.NEXT"
_ENDED, _ALIVE, _NOBODY = "408", "100", "503"


class Asker(Protocol):
    """Who hears what comes of it."""

    def came(self, msg: Msg) -> None: ...

    def ended(self) -> None:
        """An ask was not filled; another may be due."""
        ...

    def failed(self, why: str) -> None: ...


class Bounds(msgspec.Struct):
    """Of one ask, as an operator may have set them; nats-py does not know them. 0: none."""

    max_batch: int = 0
    max_expires: int = 0
    """Nanoseconds."""


class _Info(msgspec.Struct):
    config: Bounds


class Pull:
    """On an inbox of its own. A message takes one off what is asked for; an ask that ends says how much was left of it.

    Not nats-py's `fetch`, which has no way to end an ask when the app stops: what such an ask brings would be nobody's
    until the ack wait is over.
    """

    def __init__(self, client: Client, stream: str, consumer: str, asker: Asker) -> None:
        self._client, self._asker = client, asker
        self._name = f"{stream}.{consumer}"
        self._inbox = client.new_inbox()
        self._inlet: Subscription | None = None
        self._asks: deque[list[float]] = deque()
        self._heard_at = 0.0
        self._bounds = Bounds()
        self._expires = EXPIRES

    async def open(self) -> None:
        with suppress(msgspec.ValidationError, NATSError):
            # Else it is gone again, or may not be asked: the first ask will tell.
            info = await self._client.request(f"{INFO}.{self._name}", timeout=INFO_WITHIN)
            self._bounds = msgspec.json.decode(info.data, type=_Info).config
        self._expires = min(EXPIRES, self._bounds.max_expires / 1e9 or EXPIRES)
        # No bound of its own: what is asked for is bounded.
        self._inlet = await self._client.subscribe(self._inbox, cb=self._heard, pending_bytes_limit=0)

    async def ask(self, count: int) -> None:
        """For so many, or for as many as may be asked for at once: who still wants more asks again."""
        most = self._bounds.max_batch or count
        while count > 0 and (most >= count or len(self._asks) < MOST_ASKS):
            await self._ask(min(count, most))
            count -= most

    async def _ask(self, count: int) -> None:
        now = time.monotonic()
        if not self._asks:
            self._heard_at = now
        self._asks.append([now + self._expires + SILENCE, count])
        beat = min(HEARTBEAT, self._expires / 4)
        request = {"batch": count, "expires": int(self._expires * 1e9), "idle_heartbeat": int(beat * 1e9)}
        await self._client.publish(f"{NEXT}.{self._name}", msgspec.json.encode(request), reply=self._inbox)

    @property
    def asked(self) -> int:
        """How many may still come."""
        now = time.monotonic()
        if now > self._heard_at + SILENCE:
            self.forget()
        while self._asks and self._asks[0][0] <= now:
            self._asks.popleft()
        return sum(int(count) for _, count in self._asks)

    def forget(self) -> None:
        """What was asked is not answered any more."""
        self._asks.clear()

    async def _heard(self, msg: Msg) -> None:
        self._heard_at = time.monotonic()
        if msg.reply:
            self._less(1)
            self._asker.came(msg)
            return
        headers = msg.headers or {}
        status = headers.get("Status", "")
        if status == _ENDED:
            self._less(int(headers.get("Nats-Pending-Messages", "0")))
            self._asker.ended()
        elif status != _ALIVE:
            self.forget()
            # With nobody there to describe it, nats-py describes something else.
            described = "" if status == _NOBODY else headers.get("Description", "")
            self._asker.failed(described or f"there is no consumer {self._name}")

    def _less(self, count: int) -> None:
        while count > 0 and self._asks:
            oldest = self._asks[0]
            taken = min(count, int(oldest[1]))
            oldest[1] -= taken
            count -= taken
            if not oldest[1]:
                self._asks.popleft()

    async def close(self) -> None:
        """Afterwards nothing comes any more, and what was on its way has come."""
        if self._inlet is not None:
            inlet, self._inlet = self._inlet, None
            with suppress(NATSError, TimeoutError):
                await asyncio.wait_for(inlet.drain(), CLOSE_WITHIN)  # type: ignore[no-untyped-call]
