"""`POST /mew` and the WebSocket of events.

The server keeps the names of a session. The store keeps its watches and deliveries, so that the session finds them
after a restart. A socket that the client closes ends its session cleanly. A socket that breaks, or a session that is
idle for too long, counts as a lost connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.broker.maintenance import log_failure
from ackwise.core import validation as limits
from ackwise.core.errors import AckwiseError, BadInput, Overloaded
from ackwise.engine.statement_limits import DEFAULT_LIMITS, LowerLimits, StatementLimits
from ackwise.graph.commands import EndGraphSession
from ackwise.graph.errors import GraphError
from ackwise.graph.watch_options import MOST_WATCHES
from ackwise.protocols.answer_memory import AnswerMemory
from ackwise.protocols.http_request import Call, Receive, Scope, Send
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.mew import route_docs
from ackwise.protocols.mew.aio.driver import AsyncDriver
from ackwise.protocols.mew.answer_stream import CollectedAnswer
from ackwise.protocols.mew.event_socket import EventSocket
from ackwise.protocols.mew.output_records import Emit, drop, error_line
from ackwise.protocols.mew.session import MewSession
from ackwise.protocols.mew.transaction_memory import TransactionMemory
from ackwise.protocols.mew.undelivered_events import FetchDriver, PendingEvents, UndeliveredEvents
from ackwise.protocols.peers import address_of
from ackwise.protocols.route_docs import documented
from ackwise.protocols.streamed_lists import streamed

IDLE = 300.0
"""Seconds after which an unused session without a socket counts as lost."""
LOOK_EVERY = 5.0
"""Seconds between two fetches of a waiting client, in case a wake-up was missed."""
TIDY_EVERY = 5.0
MOST_EVENTS = 1000
MOST_SESSIONS = 10_000
MOST_BODY = 8 << 20
"""Bytes of a request, with its text and parameters."""
LONGEST_WAIT = 60.0
_CLEAN = (1000, 1001, 1005)
"""Close codes of a client that ends its session."""


class MewBody(msgspec.Struct, forbid_unknown_fields=True):
    """Request body of `POST /mew`.

    Up to `events` events follow each statement. Without text, the call only fetches events and waits up to `wait`
    seconds for the first.
    """

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
    """Limits of each statement, if lower than the server's."""
    full: bool = False
    """Return lines with all fields that a prompt shows."""


_BODY = msgspec.json.Decoder(MewBody)


class ActiveSession:
    """A session in memory, with its lock, its sockets and the time of its last use."""

    def __init__(self, session: MewSession) -> None:
        self.session = session
        self.lock = asyncio.Lock()
        self.used_at = time.monotonic()
        self.sockets = 0
        self.woken = asyncio.Event()


class MewServer:
    """Routes and sessions of MEW on one server."""

    def __init__(
        self,
        broker: AsyncBroker,
        *,
        most_watches: int = MOST_WATCHES,
        limits: StatementLimits = DEFAULT_LIMITS,
        answers: AnswerMemory | None = None,
    ) -> None:
        """`answers` is the server's memory for answers, which also bounds the events of WebSockets."""
        self.broker, self.driver = broker, AsyncDriver(broker)
        self._sessions: dict[str, ActiveSession] = {}
        self._most_watches, self.limits = most_watches, limits
        self.memory = TransactionMemory()
        self.answers = answers or AnswerMemory()
        self._tidying: asyncio.Task[None] | None = None

    def routes(self) -> list[Route]:
        routes = [Route("POST", "/mew", self.post), Route("DELETE", "/mew/{session}", self.delete)]
        return documented(routes, route_docs.docs(MewBody))

    # requests

    async def post(self, call: Call) -> Answer:
        call.max_body = min(call.max_body, MOST_BODY)
        body = await call.read(_BODY)
        limits.count(body.events, "events", least=0, most=MOST_EVENTS)
        if not 0.0 <= body.wait <= LONGEST_WAIT:
            raise BadInput(f"wait must be between 0 and {LONGEST_WAIT:g} seconds")
        active = self.session(body.session, body.actor)
        collected = CollectedAnswer(self.limits, call.grow, full=body.full)
        undelivered = UndeliveredEvents(self.broker, active.session.id)
        driver = FetchDriver(self.driver, undelivered)
        if not body.text.strip():
            call.memory.check(call.address)  # refuses before the call takes an event
        call.pending = PendingEvents(call.memory, call.address, undelivered)
        try:
            if body.text.strip():
                collected.fine = await call.unless_gone(self._run(active, body, collected, call.address, driver))
            else:
                await call.unless_gone(self._fetch(active, body, collected.emit, driver))
        except GraphError as problem:
            collected.fine = False
            collected.emit(error_line(problem))
        active.used_at = time.monotonic()
        if collected.is_small:
            return Answer(collected.whole(active.session.id))
        # The statements have run and the events are taken: a refusal would lose them.
        call.hold(collected.size)
        return await streamed(call, self._pieces(collected.pieces(active.session.id)))

    async def _pieces(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Pieces of an answer. A helper thread encodes each of them."""
        while piece := await self.broker.in_thread(next, pieces, b""):
            yield piece

    async def _run(
        self, active: ActiveSession, body: MewBody, collected: CollectedAnswer, caller: str, driver: AsyncDriver
    ) -> bool:
        """Run the text. If the client disconnects, the server cancels the running statement and skips later ones."""
        async with active.lock:
            if body.text.strip() in ("\\dt", "\\dg"):
                return await self.driver.drive(active.session.describe(body.text.strip()[1:]), collected.emit)
            await self.driver.drive(active.session.reopen(), drop)
            flow = active.session.run(
                body.text,
                body.params,
                above=body.above,
                keep_going=body.keep_going,
                events=0 if active.sockets else body.events,
                limits=body.limits,
                admit=collected.admit,
                has_room=collected.has_room,
                caller=caller,
            )
            return await driver.drive(flow, collected.emit)

    async def delete(self, call: Call) -> Answer:
        """End a session, also one of another server. With `?lost=true` it ends as after a lost connection."""
        session_id, lost = call.params[0], call.query.get("lost", "false")
        if lost not in ("true", "false"):
            raise BadInput(f"lost must be true or false, not {lost!r:.40}")
        active = self._sessions.pop(session_id, None)
        async with active.lock if active is not None else contextlib.nullcontext():
            if active is not None:
                active.session.drop_transaction()
            done = await self.broker.send(EndGraphSession(session=session_id, lost=lost == "true"))
        return answer({"session": session_id, "ended": bool(done.found)})

    def session(self, session_id: str | None, actor: str | None = None) -> ActiveSession:
        """The session with this id, or a new one. `_sessions` is ordered by the last use."""
        if session_id is not None:
            limits.name(session_id, "session")
        active = self._sessions.get(session_id) if session_id is not None else None
        if active is None:
            if len(self._sessions) >= MOST_SESSIONS:
                self._make_room()
            session = MewSession(
                session_id, actor=actor, most_watches=self._most_watches, limits=self.limits, memory=self.memory
            )
            active = ActiveSession(session)
            if self._tidying is None:
                self._tidying = self.broker.loop.create_task(self._tidy())
        active.used_at = time.monotonic()
        self._sessions.pop(active.session.id, None)
        self._sessions[active.session.id] = active
        return active

    def known(self, session_id: str) -> ActiveSession | None:
        """The session, if this server has it."""
        return self._sessions.get(session_id)

    def _make_room(self) -> None:
        """End the least recently used session without watches and transaction: it loses only its names."""
        for session_id, active in self._sessions.items():
            if not active.sockets and not active.lock.locked() and not active.session.is_busy:
                del self._sessions[session_id]
                self.broker.start_task(self.end(active, lost=False, here=True))
                return
        raise Overloaded("too many sessions have watches or transactions; end some, or wait for idle ones to be lost")

    async def _fetch(self, active: ActiveSession, body: MewBody, emit: Emit, driver: AsyncDriver) -> None:
        """Fetch the events that are due, or wait for the first ones."""
        if not body.events:
            return
        end = time.monotonic() + body.wait
        wake_key = await self._listen(active)
        try:
            while True:
                active.woken.clear()
                if self.broker.draining:
                    return
                fetched = await driver.drive(active.session.fetch(body.events, body.watch), emit)
                left = end - time.monotonic()
                if fetched.events or left <= 0:
                    return
                await self._wait(active, fetched.until, left)
                active.used_at = time.monotonic()
        finally:
            self.broker.listeners.remove(wake_key, active.woken.set)

    async def _listen(self, active: ActiveSession) -> str:
        """Wake the session after each commit that concerns it. Returns the key of the wake-up."""
        opened = await self.driver.drive(active.session.reopen(), drop)
        self.broker.listeners.add(opened.wake_key, active.woken.set)
        return opened.wake_key

    async def _wait(self, active: ActiveSession, until: int | None, most: float) -> None:
        pause = min(most, LOOK_EVERY)
        if until is not None:
            pause = max(0.001, min(pause, (until - self.broker.now()) / 1e6))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await active.woken.wait()

    # WebSocket

    async def socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve `/mew/events?session=`. Each event is a text message. `batch` (default 1) is the size of a fetch."""
        await receive()
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        batch = query.get("batch", "1")
        try:
            if not query.get("session") or not re.fullmatch("[0-9]{1,9}", batch):
                raise BadInput(f"say ?session= (and batch= 1 to {MOST_EVENTS})")
            limits.count(int(batch), "batch", most=MOST_EVENTS)
            active = self.session(query["session"])
        except AckwiseError as problem:
            await send({"type": "websocket.close", "code": 1008, "reason": str(problem)})
            return
        await send({"type": "websocket.accept"})
        peer = address_of(scope.get("client"))
        await self.stream(active, send, _closed(receive), batch=int(batch), peer=peer)

    async def stream(
        self, active: ActiveSession, send: Send, closed: Coroutine[Any, Any, int], *, batch: int, peer: str
    ) -> None:
        """Send the session's events as WebSocket messages until `closed` returns a close code. Then end the session."""
        events = EventSocket(active.session, self.driver, send, batch=batch, memory=self.answers, peer=peer)
        active.sockets += 1
        disconnect = asyncio.ensure_future(closed)
        pump = asyncio.ensure_future(self._pump(active, events))
        try:
            await asyncio.wait((disconnect, pump), return_when=asyncio.FIRST_COMPLETED)
            code = disconnect.result() if disconnect.done() and not disconnect.cancelled() else 1006
        finally:
            active.sockets -= 1
            disconnect.cancel()
            pump.cancel()
            try:
                await asyncio.gather(disconnect, pump, return_exceptions=True)
            finally:
                events.end()
        if not active.sockets and not self.broker.draining:  # while draining, the server closes sockets itself
            async with active.lock:
                await events.released()  # a lost session counts a failure for each delivery that it still has
                lost = code not in _CLEAN
                await self.end(active, lost=lost, here=lost)

    async def _pump(self, active: ActiveSession, events: EventSocket) -> None:
        """Send events to a socket as they come."""
        wake_key = await self._listen(active)
        try:
            while True:
                active.woken.clear()
                await self.driver.drive(active.session.reopen(), drop)
                relayed = await events.relay()
                active.used_at = time.monotonic()
                if not relayed.again:
                    await self._wait(active, relayed.until, LOOK_EVERY)
        finally:
            self.broker.listeners.remove(wake_key, active.woken.set)

    # ending sessions

    async def end(self, active: ActiveSession, *, lost: bool, here: bool) -> None:
        """End a session. With `here` it stays if another server has taken it over."""
        try:
            await self.driver.drive(active.session.end(lost=lost, here=here), drop)
        except Exception as problem:  # other sessions must still end
            log_failure("ending a MEW session", problem)

    async def _tidy(self) -> None:
        """End idle sessions as lost."""
        while True:
            await asyncio.sleep(TIDY_EVERY)
            for session_id, active in list(self._sessions.items()):
                if not active.sockets and not active.lock.locked() and time.monotonic() - active.used_at > IDLE:
                    del self._sessions[session_id]
                    await self.end(active, lost=True, here=True)

    async def close(self) -> None:
        """Forget the sessions when the server drains. The store keeps their watches and deliveries for their return."""
        if self._tidying is not None:
            self._tidying.cancel()
        self._sessions.clear()


async def _closed(receive: Receive) -> int:
    """Wait until the client disconnects, and return the close code. Ignores its messages."""
    while True:
        message: Mapping[str, Any] = await receive()
        if message["type"] == "websocket.disconnect":
            code = int(message.get("code") or 1005)
            # The server also reports 1005 for a broken connection. Only a close frame has a reason.
            return 1006 if code == 1005 and "reason" not in message else code
