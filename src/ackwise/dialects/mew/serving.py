"""MEW over HTTP: `POST /mew` runs a text in a session, `/mew/events` is a WebSocket that its events come through.

A session's names live here; its watches, with their names, and deliveries in the store, so that it finds them again
after a restart. A socket that is closed ends its session cleanly; one that breaks off, or a session that nobody has
used for a while, is a lost connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.broker.duties import complain
from ackwise.core import limits
from ackwise.core.errors import AckwiseError, BadInput, Overloaded
from ackwise.core.graph.budget import DEFAULT_LIMITS, LowerLimits, StatementLimits
from ackwise.core.graph.commands import Done, EndGraphSession, Fetched, ReleaseGraph
from ackwise.core.graph.faults import GraphError
from ackwise.core.graph.watching import MOST_WATCHES
from ackwise.dialects.http import Answer, Call, Receive, Route, Scope, Send, answer
from ackwise.dialects.mew.aio.driving import AsyncDriver
from ackwise.dialects.mew.answer import Gathered
from ackwise.dialects.mew.lines import Emit, Event, Line, drop, error_line
from ackwise.dialects.mew.memory import TransactionMemory
from ackwise.dialects.mew.talk import Session
from ackwise.dialects.pages import streamed

IDLE = 300.0
"""Seconds after which a session that has no socket, and is not used, counts as lost."""
LOOK_EVERY = 5.0
TIDY_EVERY = 5.0
MOST_EVENTS = 1000
MOST_SESSIONS = 10_000
MOST_BODY = 8 << 20
"""Bytes of a request: its text, and its parameters."""
LONGEST_WAIT = 60.0
_CLEAN = (1000, 1001, 1005)


class MewBody(msgspec.Struct, forbid_unknown_fields=True):
    """`events` is how many may follow each statement; with no text, how many are fetched, waiting up to `wait`."""

    text: str = ""
    params: dict[str, Any] = {}
    session: str | None = None
    events: int = 100
    wait: float = 0.0
    watch: str | None = None
    keep_going: bool = False
    above: int = 0
    actor: str | None = None
    limits: LowerLimits | None = None
    """Limits of each statement. A call can only lower the server's limits."""
    full: bool = False
    """Lines with all that a prompt at the other end shows."""


_BODY = msgspec.json.Decoder(MewBody)


class Seat:
    """A session and who uses it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lock = asyncio.Lock()
        self.used_at = time.monotonic()
        self.sockets = 0
        self.rung = asyncio.Event()


class MewFace:
    """Every session of this server."""

    def __init__(
        self, broker: AsyncBroker, *, most_watches: int = MOST_WATCHES, limits: StatementLimits = DEFAULT_LIMITS
    ) -> None:
        self._broker, self._driver = broker, AsyncDriver(broker)
        self._seats: dict[str, Seat] = {}
        self._most_watches, self._limits = most_watches, limits
        self.memory = TransactionMemory()
        self._tidying: asyncio.Task[None] | None = None

    def routes(self) -> list[Route]:
        return [Route("POST", "/mew", self.post), Route("DELETE", "/mew/{session}", self.delete)]

    # requests

    async def post(self, call: Call) -> Answer:
        call.max_body = min(call.max_body, MOST_BODY)
        body = await call.read(_BODY)
        limits.count(body.events, "events", least=0, most=MOST_EVENTS)
        if not 0.0 <= body.wait <= LONGEST_WAIT:
            raise BadInput(f"wait must be between 0 and {LONGEST_WAIT:g} seconds")
        seat = self._seat(body.session, body.actor)
        gathered = Gathered(self._limits, call.grow, full=body.full)
        try:
            if body.text.strip():
                gathered.fine = await call.unless_gone(self._run(seat, body, gathered))
            else:
                await call.unless_gone(self._fetch(seat, body, gathered.emit))
        except GraphError as problem:
            gathered.fine = False
            gathered.emit(error_line(problem))
        seat.used_at = time.monotonic()
        if gathered.is_small:
            return Answer(gathered.whole(seat.session.id))
        return await streamed(call, self._pieces(gathered.pieces(seat.session.id)))

    async def _pieces(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Pieces of an answer, each encoded in a helper thread."""
        while piece := await self._broker.in_thread(next, pieces, b""):
            yield piece

    async def _run(self, seat: Seat, body: MewBody, gathered: Gathered) -> bool:
        """Run the text. When the client leaves, the running statement is cancelled and later statements do not run."""
        async with seat.lock:
            if body.text.strip() in ("\\dt", "\\dg"):
                return await self._driver.drive(seat.session.describe(body.text.strip()[1:]), gathered.emit)
            await self._driver.drive(seat.session.come_back(), drop)
            talk = seat.session.run(
                body.text,
                body.params,
                above=body.above,
                keep_going=body.keep_going,
                events=0 if seat.sockets else body.events,
                limits=body.limits,
                admit=gathered.admit,
            )
            return await self._driver.drive(talk, gathered.emit)

    async def delete(self, call: Call) -> Answer:
        """The end of a session, also of one that was with another server: a clean one, or `?lost=true`."""
        found, lost = call.params[0], call.query.get("lost", "false")
        if lost not in ("true", "false"):
            raise BadInput(f"lost must be true or false, not {lost!r:.40}")
        seat = self._seats.pop(found, None)
        async with seat.lock if seat is not None else contextlib.nullcontext():
            if seat is not None:
                seat.session.drop_transaction()
            done: Done = await self._broker.send(EndGraphSession(session=found, lost=lost == "true"))
        return answer({"session": found, "ended": bool(done.found)})

    def _seat(self, found: str | None, actor: str | None = None) -> Seat:
        if found is not None:
            limits.name(found, "session")
        seat = self._seats.get(found) if found is not None else None
        if seat is None:
            if len(self._seats) >= MOST_SESSIONS:
                self._make_room()
            session = Session(
                found, actor=actor, most_watches=self._most_watches, limits=self._limits, memory=self.memory
            )
            seat = Seat(session)
            self._seats[seat.session.id] = seat
            if self._tidying is None:
                self._tidying = self._broker.loop.create_task(self._tidy())
        seat.used_at = time.monotonic()
        self._seats[seat.session.id] = self._seats.pop(seat.session.id)  # the one last used comes last
        return seat

    def _make_room(self) -> None:
        """The session that was not used for longest ends, if it has nothing to lose but what it calls things."""
        for found, seat in self._seats.items():
            if not seat.sockets and not seat.lock.locked() and not seat.session.is_busy:
                del self._seats[found]
                self._broker.keep(self._broker.loop.create_task(self._end(seat, lost=False, here=True)))
                return
        raise Overloaded("too many sessions have watches or transactions; end some, or wait for idle ones to be lost")

    async def _fetch(self, seat: Seat, body: MewBody, emit: Emit) -> None:
        """Events that are there, or the first that come."""
        if not body.events:
            return
        end = time.monotonic() + body.wait
        bell = await self._listen(seat)
        try:
            while True:
                seat.rung.clear()
                lines: list[Line] = []
                until = await self._take(seat, body.events, body.watch, lines.append)
                for line in lines:
                    emit(line)
                left = end - time.monotonic()
                if lines or left <= 0 or self._broker.draining:
                    return
                await self._wait(seat, until, left)
                seat.used_at = time.monotonic()
        finally:
            self._broker.bells.leave(bell, seat.rung.set)

    async def _take(self, seat: Seat, most: int, watch: str | None, emit: Emit) -> int | None:
        """What is fetched for somebody who is gone by then goes back unspent."""
        if self._broker.draining:
            return None
        lines: list[Line] = []
        fetching = asyncio.ensure_future(self._driver.drive(seat.session.fetch(most, watch), lines.append))
        try:
            fetched = await asyncio.shield(fetching)
        except asyncio.CancelledError:
            self._broker.keep(self._broker.loop.create_task(self._give_back(seat, fetching, lines)))
            raise
        for line in lines:
            emit(line)
        return fetched.until

    async def _give_back(self, seat: Seat, fetching: asyncio.Future[Fetched], lines: list[Line]) -> None:
        with contextlib.suppress(AckwiseError):
            await fetching
            ids = tuple(line.delivery_id for line in lines if isinstance(line, Event) and line.delivery_id is not None)
            if ids:
                await self._broker.send(ReleaseGraph(session=seat.session.id, deliveries=ids))

    async def _listen(self, seat: Seat) -> str:
        opened = await self._driver.drive(seat.session.come_back(), drop)
        self._broker.bells.listen(opened.bell, seat.rung.set)
        return opened.bell

    async def _wait(self, seat: Seat, until: int | None, most: float) -> None:
        pause = min(most, LOOK_EVERY)
        if until is not None:
            pause = max(0.001, min(pause, (until - self._broker.now()) / 1e6))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await seat.rung.wait()

    # the socket

    async def socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`/mew/events?session=`: each event is a text message; `batch` (default 1) is how many are fetched at once."""
        await receive()
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        batch = query.get("batch", "1")
        try:
            if not query.get("session") or not re.fullmatch("[0-9]{1,9}", batch):
                raise BadInput(f"say ?session= (and batch= 1 to {MOST_EVENTS})")
            limits.count(int(batch), "batch", most=MOST_EVENTS)
            seat = self._seat(query["session"])
        except AckwiseError as problem:
            await send({"type": "websocket.close", "code": 1008, "reason": str(problem)})
            return
        await send({"type": "websocket.accept"})
        seat.sockets += 1
        gone = asyncio.ensure_future(_closed(receive))
        pump = asyncio.ensure_future(self._pump(seat, int(batch), send))
        try:
            await asyncio.wait((gone, pump), return_when=asyncio.FIRST_COMPLETED)
            code = gone.result() if gone.done() and not gone.cancelled() else 1006
        finally:
            seat.sockets -= 1
            gone.cancel()
            pump.cancel()
            await asyncio.gather(gone, pump, return_exceptions=True)
        if not seat.sockets and not self._broker.draining:  # then it was this end that closed it
            async with seat.lock:
                lost = code not in _CLEAN
                await self._end(seat, lost=lost, here=lost)

    async def _pump(self, seat: Seat, batch: int, send: Send) -> None:
        bell = await self._listen(seat)
        try:
            while True:
                seat.rung.clear()
                await self._driver.drive(seat.session.come_back(), drop)
                lines: list[Line] = []
                until = await self._take(seat, batch, None, lines.append)
                for line in lines:
                    text = msgspec.json.encode(line.as_object()).decode()
                    await send({"type": "websocket.send", "text": text})
                seat.used_at = time.monotonic()
                if not lines:
                    await self._wait(seat, until, LOOK_EVERY)
        finally:
            self._broker.bells.leave(bell, seat.rung.set)

    # ends

    async def _end(self, seat: Seat, *, lost: bool, here: bool) -> None:
        """Unless the session said goodbye itself, it may be with another server by now: then it only left this one."""
        try:
            await self._driver.drive(seat.session.end(lost=lost, here=here), drop)
        except Exception as problem:  # others still have to be ended
            complain("ending a MEW session", problem)

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_EVERY)
            for found, seat in list(self._seats.items()):
                if not seat.sockets and not seat.lock.locked() and time.monotonic() - seat.used_at > IDLE:
                    del self._seats[found]
                    await self._end(seat, lost=True, here=True)

    async def close(self) -> None:
        """The server drains. Its sessions stand, with what they were handed: they may come back after a restart."""
        if self._tidying is not None:
            self._tidying.cancel()
        self._seats.clear()


async def _closed(receive: Receive) -> int:
    """How the other end went away; what it sends is not listened to."""
    while True:
        message: Mapping[str, Any] = await receive()
        if message["type"] == "websocket.disconnect":
            code = int(message.get("code") or 1005)
            # Our server says 1005 of a connection that just broke, too; only a close frame has a reason.
            return 1006 if code == 1005 and "reason" not in message else code
