"""MEW sessions of dashboard pages: run a text, stream the events of its watches, end with the page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, MutableMapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from ackwise.core.errors import BadInput
from ackwise.graph.errors import GraphError
from ackwise.protocols.answer_memory import PendingAnswer
from ackwise.protocols.http_request import Send
from ackwise.protocols.mew.answer_stream import CollectedAnswer
from ackwise.protocols.mew.http import ActiveSession, MewServer
from ackwise.protocols.mew.output_records import Object, drop, error_line
from ackwise.protocols.mew.session import MewSession
from ackwise.protocols.peers import address_of

ROWS, LINES, VALUE = 200, 200, 2000
"""Most rows of a statement, lines of a text and characters of a value that a page gets."""
NAMES = 50
"""Most names of a statement's new entities."""
EVENTS = 100
"""Most events of a run without a stream."""
ORPHANED = 30.0
"""Seconds after which a session ends whose page has no stream."""
BEAT = 0.25
"""Seconds without an event after which a stream gets None."""
_PAGE = re.compile(r"page_[0-9a-f]{32}")
"""Ids of page sessions. A page cannot name the session of another client."""

_MAPPINGS = ("bindings", "declared")
_KEPT = frozenset({"columns", "rows", *_MAPPINGS})


class PageAnswer(msgspec.Struct):
    """Lines of a text. `lines` and the rows of a result are cut: `lines_left` and `rows_left` are the rest."""

    lines: list[Object]
    lines_left: int
    fine: bool
    watches: bool
    """Whether the session has a watch, whose events the page may stream."""


class PageSessions:
    """Sessions of pages, beside those of other clients, within the same limits."""

    def __init__(self, server: MewServer) -> None:
        self._server, self._limits = server, server.limits
        self._ends: dict[str, asyncio.TimerHandle] = {}
        self._streams: set[asyncio.Task[None]] = set()

    async def run(
        self, page: str, text: str, *, client: Sequence[object] | None, reads_only: bool, events: bool = False
    ) -> PageAnswer:
        """Run a text in the session of a page. With `events` the answer has the first events of its watches.

        With `reads_only` the text may only read. It runs in a session of its own, which leaves nothing in the store.
        """
        _check_page(page)
        caller, memory = address_of(client), self._server.answers
        memory.check(caller)
        pending = PendingAnswer(memory, caller)
        collected = CollectedAnswer(self._limits, pending.grow, full=True)
        try:
            if reads_only:
                session = MewSession(page, limits=self._limits)
                await self._drive(session, text, collected, caller=caller, reads_only=True)
                return _brief(collected, watches=False)
            active = self._server.session(page)
            self._keep(page)
            async with active.lock:
                await self._server.driver.drive(active.session.reopen(), drop)
                await self._drive(
                    active.session, text, collected, caller=caller, reads_only=False, events=EVENTS if events else 0
                )
            return _brief(collected, watches=active.session.is_busy)
        finally:
            pending.delivered()
            self._end_later(page)

    async def _drive(
        self,
        session: MewSession,
        text: str,
        collected: CollectedAnswer,
        *,
        caller: str,
        reads_only: bool,
        events: int = 0,
    ) -> None:
        flow = session.run(
            text,
            admit=collected.admit,
            has_room=collected.has_room,
            caller=caller,
            reads_only=reads_only,
            events=events,
        )
        try:
            collected.fine = await self._server.driver.drive(flow, collected.emit)
        except GraphError as problem:
            collected.fine = False
            collected.emit(error_line(problem))

    async def events(self, page: str, *, client: Sequence[object] | None) -> AsyncGenerator[Object | None, None]:
        """Events of the page's watches, as they come, and None while there is none. The session ends with the iterator.

        A page without a session gets no events.
        """
        _check_page(page)
        active = self._server.known(page)
        if active is None:
            return
        self._keep(page)
        lines: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
        closed = asyncio.get_running_loop().create_future()

        async def send(message: MutableMapping[str, Any]) -> None:
            if message.get("text"):
                await lines.put(message["text"])

        serving = self._serve(active, send, closed, address_of(client))
        try:
            while not serving.done() and not self._server.broker.draining:
                try:
                    async with asyncio.timeout(BEAT):
                        text = await lines.get()
                except TimeoutError:
                    yield None
                else:
                    yield _brief_line(msgspec.json.decode(text))
        finally:
            # The stream may be cancelled here, so the session ends in a task of its own.
            closed.set_result(1000)

    def _serve(self, active: ActiveSession, send: Send, closed: asyncio.Future[int], caller: str) -> asyncio.Task[None]:
        async def code() -> int:
            return await asyncio.shield(closed)

        stream = self._server.stream(active, send, code(), batch=1, peer=caller)
        serving = asyncio.get_running_loop().create_task(stream)
        self._streams.add(serving)
        serving.add_done_callback(self._streams.discard)
        return serving

    def _keep(self, page: str) -> None:
        timer = self._ends.pop(page, None)
        if timer is not None:
            timer.cancel()

    def _end_later(self, page: str) -> None:
        """End the session soon, unless its page opens a stream."""
        active = self._server.known(page)
        if active is not None and not active.sockets:
            self._keep(page)
            self._ends[page] = self._server.broker.loop.call_later(ORPHANED, self._end, page, active)

    def _end(self, page: str, active: ActiveSession) -> None:
        self._ends.pop(page, None)
        if not active.sockets and not active.lock.locked():
            self._server.broker.start_task(self._server.end(active, lost=False, here=True))


def _check_page(page: str) -> None:
    if not _PAGE.fullmatch(page):
        raise BadInput("session must be the id that the page got; load the page again")


def _brief(collected: CollectedAnswer, *, watches: bool) -> PageAnswer:
    """The answer within the bounds of a page."""
    lines = [_brief_line(line) for line, _ in zip(collected.lines, range(LINES), strict=False)]
    return PageAnswer(lines, len(collected.lines) - len(lines), collected.fine, watches)


def _brief_line(line: Object) -> Object:
    brief = {name: _brief_value(value) for name, value in line.items() if name not in _KEPT}
    brief |= {name: dict(islice(line[name].items(), NAMES)) for name in _MAPPINGS if line.get(name)}
    if line.get("columns"):
        rows = line["rows"]
        brief["columns"] = [_brief_value(column) for column in line["columns"]]
        brief["rows"] = [[_brief_value(value) for value in row] for row in rows[:ROWS]]
        brief["rows_left"] = max(0, len(rows) - ROWS)
    return brief


def _brief_value(value: Any) -> Any:
    """A number, a boolean or None as it is, anything else as text of a bounded length."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE else text[:VALUE] + "…"
