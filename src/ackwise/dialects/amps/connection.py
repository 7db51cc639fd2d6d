"""One TCP connection: bytes to frames and back, with bounds on a client's patience and on what waits for it."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from ackwise.core.amps import alive
from ackwise.core.amps.frames import BadFrame, Frames
from ackwise.core.errors import Overloaded
from ackwise.dialects.amps.session import Session
from ackwise.dialects.peers import address_of

if TYPE_CHECKING:
    from ackwise.dialects.amps.face import AmpsFace

log = logging.getLogger("ackwise.amps")

LOGON_PATIENCE = 20.0
"""How long a client may take to log on."""
FRAME_PATIENCE = 60.0
"""How long the rest of a frame may take to arrive."""
WRITE_PATIENCE = 60.0
"""How long a client may leave unread what was sent to it."""
HIGH_WATER = 1 << 20
MOST_UNREAD = 32 << 20
"""A listener of plain topics that is so far behind is cut off: nothing holds the publisher back."""


class Connection(asyncio.Protocol):
    """Feeds a session. Reading stops while the session has too much to do, or its client does not read."""

    def __init__(self, face: AmpsFace) -> None:
        self._face = face
        self._frames = Frames(face.max_frame)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._holds: set[str] = set()
        self._counted = 0
        self._unread = 0
        self._loop = asyncio.get_running_loop()
        self.writable = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        transport.set_write_buffer_limits(HIGH_WATER)
        if (sock := transport.get_extra_info("socket")) is not None:
            alive.ask_after(sock, socket)
        self.session = Session(self._face, self)
        peers = self._face.peers
        self._address = address_of(transport.get_extra_info("peername"))
        within_share = peers.enter(self._address)
        if len(self._face.sessions) > peers.max_connections or not within_share:
            bound = "its address holds its share" if not within_share else "all are taken"
            log.warning("too many AMPS connections: %s; one more is refused", bound)
            transport.abort()
            return
        self.watch("logon", LOGON_PATIENCE)

    @property
    def closing(self) -> bool:
        return self._transport.is_closing()

    def data_received(self, data: bytes) -> None:
        if self.session.ending:
            return
        self._frames.feed(data)
        try:
            while (frame := self._frames.next()) is not None:
                self.unwatch("frame")
                self.session.take(frame, self._frames.size)
        except BadFrame as problem:
            self.hold("broken")
            self.session.take(problem)
        self._watch_frame()
        self._count(self._frames.unfinished)

    def _watch_frame(self) -> None:
        """The rest of a frame has to come, but only while it is read."""
        if self._frames.unfinished and not self._holds and "frame" not in self._timers:
            self.watch("frame", FRAME_PATIENCE)

    def _count(self, unfinished: int) -> None:
        """Frames that are half here weigh on everybody: beyond a bound, whoever sends more is cut off."""
        self._face.intake.done(self._counted)
        self._counted = unfinished
        try:
            self._face.intake.add(unfinished)
        except Overloaded as problem:
            log.warning("an AMPS client is cut off: %s", problem)
            self._transport.abort()

    def connection_lost(self, problem: Exception | None) -> None:
        for name in list(self._timers):
            self.unwatch(name)
        self._face.peers.leave(self._address)
        self._count(0)
        self._count_unread(0)
        self.writable = False
        self.session.hung_up()

    def _count_unread(self, size: int) -> None:
        """Counts the bytes that wait for this client, in the memory that all answers share."""
        before, self._unread = self._unread, size
        self._face.memory.add(size)
        self._face.memory.free(before)

    def pause_writing(self) -> None:
        self.writable = False
        self._count_unread(self._transport.get_write_buffer_size())
        self.hold("unread")
        self.watch("unread", WRITE_PATIENCE)
        self.session.look()

    def resume_writing(self) -> None:
        self.writable = True
        self._count_unread(0)
        self.unwatch("unread")
        self.release("unread")
        self.session.look()

    def write(self, data: bytes) -> None:
        if not self.closing:
            self._transport.write(data)

    def tell(self, data: bytes) -> None:
        """Send what its client did not ask for one by one: it has to keep up."""
        if self._transport.get_write_buffer_size() > MOST_UNREAD:
            log.warning("an AMPS client that does not read is cut off")
            self._transport.abort()
        self.write(data)

    def close(self) -> None:
        """After what was written so far."""
        self._transport.close()

    def hold(self, why: str) -> None:
        """Read nothing until it is released."""
        if not self._holds and not self.closing:
            self._transport.pause_reading()
        self._holds.add(why)
        self.unwatch("frame")

    def release(self, why: str) -> None:
        if why not in self._holds:
            return
        self._holds.remove(why)
        if not self._holds and not self.closing:
            self._transport.resume_reading()
            self._watch_frame()

    def watch(self, what: str, patience: float) -> None:
        self._timers[what] = self._loop.call_later(patience, self._give_up, what)

    def unwatch(self, what: str) -> None:
        timer = self._timers.pop(what, None)
        if timer is not None:
            timer.cancel()

    def _give_up(self, what: str) -> None:
        log.info("an AMPS connection is cut: its %s took too long", what)
        self._transport.abort()
