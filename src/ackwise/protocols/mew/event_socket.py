"""Event socket: sends the events of a session to one WebSocket, within the answer memory."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

import msgspec

from ackwise.graph.commands import FETCH_BYTES
from ackwise.protocols.answer_memory import LARGE, AnswerMemory
from ackwise.protocols.http_request import Send
from ackwise.protocols.mew.aio.driver import AsyncDriver
from ackwise.protocols.mew.output_records import EventRecord, Line
from ackwise.protocols.mew.session import MewSession
from ackwise.protocols.mew.undelivered_events import FetchDriver, PendingEvents, UndeliveredEvents

LOOK_EVERY = 0.05
"""Seconds between two looks whether the answer memory has room."""


class Relayed(NamedTuple):
    """Result of one batch."""

    again: bool
    """There may be more events now."""
    until: int | None = None
    """When an item becomes free without a commit."""


class EventSocket:
    """Events on their way to one WebSocket.

    Large events hold answer memory from before their fetch until the socket has taken them. If the socket breaks, the
    deliveries that it did not take are released.
    """

    def __init__(
        self, session: MewSession, driver: AsyncDriver, send: Send, *, batch: int, memory: AnswerMemory, peer: str
    ) -> None:
        self._session, self._broker, self._batch, self._send = session, driver.broker, batch, send
        self._undelivered = UndeliveredEvents(driver.broker, session.id)
        self._driver = FetchDriver(driver, self._undelivered)
        self._memory, self._peer = memory, peer
        self._pending = PendingEvents(memory, peer, self._undelivered)
        self._next = 0
        """Bytes of the next event, if it is large."""
        self._sending: asyncio.Future[None] | None = None
        """A large event that the socket is taking."""

    async def relay(self) -> Relayed:
        """Fetch one batch and send it. While the memory has no room, the events stay in the store."""
        room = await self._reserve()
        if self._broker.draining:
            self._pending.delivered()  # frees the memory
            return Relayed(again=False)
        lines: deque[Line] = deque()
        fetched = await self._driver.drive(self._session.fetch(self._batch, most_bytes=room), lines.append)
        self._pending.built(fetched.bytes)
        # Without better knowledge, the next event is as large as these.
        self._next = fetched.needs or fetched.bytes // max(1, len(lines))
        relayed = Relayed(bool(lines or fetched.needs), fetched.until)
        del fetched  # only `lines` holds the events from here on
        while lines:
            await self._send_line(lines)
        self._pending.delivered()
        return relayed

    async def _reserve(self) -> int:
        """Wait for memory and return the bytes that the next fetch may take: a batch of large events, or one."""
        batch = max(self._next, min(FETCH_BYTES, self._next * self._batch))
        while True:
            if not self._memory.is_full_for(self._peer):
                for size in (batch, self._next):
                    if self._pending.grow(size):
                        return max(LARGE, size)
            await asyncio.sleep(LOOK_EVERY)

    async def _send_line(self, lines: deque[Line]) -> None:
        """Send the first line. The socket takes a large one in a task of its own, which a cancel does not end."""
        delivery_id = lines[0].delivery_id if isinstance(lines[0], EventRecord) else None
        text = msgspec.json.encode(lines.popleft().as_object()).decode()
        if len(text) <= LARGE:
            await self._send({"type": "websocket.send", "text": text})
        else:
            self._sending = asyncio.ensure_future(self._send_large({"type": "websocket.send", "text": text}))
            del text
            await asyncio.shield(self._sending)
            self._sending = None
        self._undelivered.sent(delivery_id)

    async def _send_large(self, message: dict[str, str]) -> None:
        """Send a message, and wait until the socket has taken it.

        `send` only waits before it writes. An empty message writes nothing, so its `send` ends when the one before it
        has left the buffer. It raises an error if the connection is lost.
        """
        await self._send(message)
        message.clear()  # the socket has its own copy
        await self._send({"type": "websocket.send"})

    def end(self) -> None:
        """Release what the socket did not take. The memory is free when the socket has taken the last event."""
        self._undelivered.release_soon()
        if self._sending is None or self._sending.done():
            self._pending.lost()
        else:
            self._sending.add_done_callback(self._sent_last)

    def _sent_last(self, sending: asyncio.Future[None]) -> None:
        if not sending.cancelled():
            sending.exception()  # a broken socket
        self._pending.lost()

    async def released(self) -> None:
        """Wait until the release of `end` is done."""
        await self._undelivered.released()
