"""TCP connection of an AMPS client: bytes to frames, timeouts, flow control."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from ackwise.core.errors import Overloaded
from ackwise.observability.debug_log import debug_records
from ackwise.protocols.amps.session import AmpsSession
from ackwise.protocols.peers import address_of
from ackwise.wire import amps
from ackwise.wire.amps import BadFrame, Frames

if TYPE_CHECKING:
    from ackwise.protocols.amps.server_state import AmpsService

log = logging.getLogger("ackwise.amps")

LOGON_PATIENCE = 20.0
"""Seconds within which a client must log on."""
FRAME_PATIENCE = 60.0
"""Seconds within which the rest of a frame must arrive."""
WRITE_PATIENCE = 60.0
"""Seconds within which a client must read what the server has sent."""
HIGH_WATER = 1 << 20
MOST_UNREAD = 32 << 20
"""Unread bytes at which the server disconnects a listener of plain topics. Publishers never wait for listeners."""


class AmpsConnection(asyncio.Protocol):
    """Passes frames to a session. Pauses reading while the session is overloaded or its client does not read."""

    def __init__(self, service: AmpsService) -> None:
        self._service = service
        self._frames = Frames(service.max_frame)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pauses: set[str] = set()
        self._counted = 0
        self._unread = 0
        self._loop = asyncio.get_running_loop()
        self.writable = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        transport.set_write_buffer_limits(HIGH_WATER)
        if (sock := transport.get_extra_info("socket")) is not None:
            amps.keep_alive(sock, socket)
        self.session = AmpsSession(self._service, self)
        peers = self._service.peers
        self._address = address_of(transport.get_extra_info("peername"))
        within_share = peers.enter(self._address)
        debug_records.write(log, "connection opened", peer=self._address, connections=len(self._service.sessions))
        if len(self._service.sessions) > peers.max_connections or not within_share:
            bound = "its address holds its share" if not within_share else "all are taken"
            log.warning("too many AMPS connections: %s; refused one more", bound)
            transport.abort()
            return
        self.start_timer("logon", LOGON_PATIENCE)

    @property
    def address(self) -> str:
        return self._address

    @property
    def closing(self) -> bool:
        return self._transport.is_closing()

    def data_received(self, data: bytes) -> None:
        if self.session.ending:
            return
        self._frames.feed(data)
        try:
            while (frame := self._frames.next()) is not None:
                self.stop_timer("frame")
                self.session.receive(frame, self._frames.size)
        except BadFrame as problem:
            self.pause_reading("broken")
            self.session.receive(problem)
        self._watch_frame()
        self._count(self._frames.unfinished)

    def _watch_frame(self) -> None:
        """Starts the timer for the rest of a frame, but not while reading is paused."""
        if self._frames.unfinished and not self._pauses and "frame" not in self._timers:
            self.start_timer("frame", FRAME_PATIENCE)

    def _count(self, unfinished: int) -> None:
        """Counts bytes of unfinished frames by address. Disconnects the client that exceeds a bound."""
        self._service.incoming.done(self._counted, self._address)
        self._counted = unfinished
        try:
            self._service.incoming.add(unfinished, self._address)
        except Overloaded as problem:
            log.warning("disconnected an AMPS client: %s", problem)
            self._transport.abort()

    def connection_lost(self, problem: Exception | None) -> None:
        for name in list(self._timers):
            self.stop_timer(name)
        self._service.peers.leave(self._address)
        debug_records.write(log, "connection closed", peer=self._address, connections=len(self._service.sessions))
        self._count(0)
        self._count_unread(0)
        self.writable = False
        self.session.connection_closed()

    def _count_unread(self, size: int) -> None:
        """Counts the bytes that wait for this client, in the memory that all answers share."""
        before, self._unread = self._unread, size
        memory = self._service.memory
        was_full = memory.is_full_for(self._address)
        memory.add(size, self._address)
        memory.free(before, self._address)
        if not was_full and memory.is_full_for(self._address):
            self._service.wake_dispatchers()

    def pause_writing(self) -> None:
        self.writable = False
        self._count_unread(self._transport.get_write_buffer_size())
        self.pause_reading("unread")
        self.start_timer("unread", WRITE_PATIENCE)
        self.session.wake()

    def resume_writing(self) -> None:
        self.writable = True
        self._count_unread(0)
        self.stop_timer("unread")
        self.resume_reading("unread")
        self.session.wake()

    def write(self, data: bytes) -> None:
        if not self.closing:
            self._transport.write(data)
            if not self.writable:
                self._count_unread(self._transport.get_write_buffer_size())

    @property
    def may_send(self) -> bool:
        """Whether the client reads, and its address has memory left for messages that it has not read."""
        return self.writable and not self._service.memory.is_full_for(self._address)

    def write_published(self, data: bytes) -> None:
        """Sends a message of a plain topic. Disconnects a client that reads too slowly for the memory that is left."""
        too_slow = self._transport.get_write_buffer_size() > MOST_UNREAD
        self.write(data)
        memory = self._service.memory
        if not self.closing and (too_slow or (self._unread and memory.is_full_for(self._address, without=len(data)))):
            log.warning("disconnected an AMPS client at %s that does not read its messages", self._address)
            self._transport.abort()
            self._count_unread(0)

    def close(self) -> None:
        """Closes the connection after sending what was written so far."""
        self._transport.close()

    def pause_reading(self, why: str) -> None:
        """Reads nothing until every reason to pause is withdrawn by `resume_reading`."""
        if not self._pauses and not self.closing:
            self._transport.pause_reading()
        self._pauses.add(why)
        self.stop_timer("frame")

    def resume_reading(self, why: str) -> None:
        if why not in self._pauses:
            return
        self._pauses.remove(why)
        if not self._pauses and not self.closing:
            self._transport.resume_reading()
            self._watch_frame()

    def start_timer(self, what: str, patience: float) -> None:
        self._timers[what] = self._loop.call_later(patience, self._time_out, what)

    def stop_timer(self, what: str) -> None:
        timer = self._timers.pop(what, None)
        if timer is not None:
            timer.cancel()

    def _time_out(self, what: str) -> None:
        log.info("disconnected an AMPS client: its %s took too long", what)
        self._transport.abort()
