"""A session: text in, results and events out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from ackwise.client.servers import is_server
from ackwise.core.errors import BadInput
from ackwise.core.graph.budget import DEFAULT_LIMITS, lower_limits
from ackwise.core.graph.faults import GraphError
from ackwise.core.graph.watching import MOST_WATCHES
from ackwise.dialects.mew.lines import Emit, Event, Line, Note, Result, error_from
from ackwise.dialects.mew.talk import BLOCKED_FOR
from ackwise.dialects.mew.talk import Session as Talk
from ackwise.mew.aio.desks import AsyncDesk, AsyncLocalDesk, AsyncRemoteDesk
from ackwise.mew.reaching import AsyncReach
from ackwise.store.clock import Clock

FOR_EVER = 3600.0 * 24 * 365
MOST_NOTICES = 1000


class AsyncSession:
    """A connection to a graph: in a store of this process, or at a server. It opens when it is first used.

    `actor` is the id of the node that acts (`#self`, `current_actor()`). Leaving a `with` block in which something was
    raised counts as a lost connection; `close` is a clean end and gives back what was handed over, unspent.
    `limits` lowers what one statement may use: `{"seconds": 1, "rows": 1000, "bytes": 1 << 20, "changes": 100}`.
    """

    def __init__(
        self,
        url: str = "sqlite:///ackwise.db",
        *,
        session: str | None = None,
        actor: str | None = None,
        clock: Clock | None = None,
        max_watches: int | None = None,
        blocked_for: float | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> None:
        if is_server(url) and (clock, max_watches, blocked_for) != (None, None, None):
            raise BadInput("clock, max_watches and blocked_for are for a store of this process: a server has its own")
        self._url, self._clock, self._limits = url, clock, limits
        lower = lower_limits(limits)
        self._talk = Talk(
            session,
            actor=actor,
            most_watches=MOST_WATCHES if max_watches is None else max_watches,
            blocked_for=BLOCKED_FOR if blocked_for is None else blocked_for,
            limits=DEFAULT_LIMITS.lowered(lower),
        )
        self._desk: AsyncDesk | None = None
        self.notices: deque[Note] = deque(maxlen=MOST_NOTICES)
        """What the watches had to say besides events, such as E8003."""

    @property
    def id(self) -> str:
        return self._talk.id

    @property
    def names(self) -> dict[str, str]:
        """What the session's names stand for."""
        return self._talk.names

    async def _opened(self) -> AsyncDesk:
        if self._desk is None:
            if is_server(self._url):
                options: dict[str, Any] = {"actor": self._talk.actor} if self._talk.actor is not None else {}
                if self._limits is not None:
                    options["limits"] = dict(self._limits)
                self._desk = AsyncRemoteDesk(self._url, self.id, options, self.names)
            else:
                broker = await AsyncReach.broker(self._url, self._clock)
                self._desk = AsyncLocalDesk(broker, self._talk, owned=True)
        return self._desk

    async def another(self, *, actor: str | None = None) -> AsyncSession:
        """Another session on the same store."""
        desk = await self._opened()
        made = AsyncSession(self._url, actor=actor, clock=self._clock, limits=self._limits)
        if isinstance(desk, AsyncLocalDesk):
            made._desk = AsyncLocalDesk(desk.broker, made._talk, owned=False)
        return made

    async def __aenter__(self) -> AsyncSession:
        await self._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(lost=problem is not None)

    async def close(self, *, lost: bool = False) -> None:
        if self._desk is not None:
            desk, self._desk = self._desk, None
            await desk.close(lost=lost)

    # text

    async def stream(
        self,
        text: str,
        emit: Emit,
        params: Mapping[str, Any] | None = None,
        *,
        above: int = 0,
        keep_going: bool = False,
        events: int = 0,
    ) -> bool:
        """Run a text, calling `emit` with each line as it comes; False when something failed."""
        desk = await self._opened()
        return await desk.run(text, params or {}, emit, above=above, keep_going=keep_going, events=events)

    async def run(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> list[Result]:
        """Run a text; the first statement that fails raises `MewError`, and those before it stay done."""
        lines: list[Line] = []
        await self.stream(text, lines.append, {**(params or {}), **named})
        self._note(lines)
        for line in lines:
            if isinstance(line, Note) and line.kind == "error":
                raise error_from(line)
        return [line for line in lines if isinstance(line, Result)]

    async def query(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> list[dict[str, Any]]:
        """The rows of the text's last statement, by column."""
        results = await self.run(text, params, **named)
        return results[-1].records if results else []

    async def ack(self, delivery: Event | str) -> Result:
        return (await self.run("ACK $delivery", {"delivery": _id(delivery)}))[-1]

    async def nack(self, delivery: Event | str, *, retry: bool = True) -> Result:
        """Failed: again, or (without `retry`) a dead letter at once."""
        text = "NACK $delivery" if retry else "NACK $delivery [no_retry]"
        return (await self.run(text, {"delivery": _id(delivery)}))[-1]

    # events

    async def fetch(self, most: int = 100, *, watch: str | None = None, wait: float = 0.0) -> list[Line]:
        """Events and notices in the order they came, waiting up to `wait` seconds for the first."""
        lines: list[Line] = []
        await (await self._opened()).fetch(most, watch, wait, lines.append)
        return lines

    async def describe(self, what: str, emit: Emit) -> None:
        """`dt` tells the types, `dg` how much there is of each."""
        await (await self._opened()).describe(what, emit)

    async def events(self, most: int = 100, *, watch: str | None = None, wait: float = 0.0) -> list[Event]:
        """Events of the session's watches (or of one, by its handle), waiting up to `wait` seconds for the first."""
        lines = await self.fetch(most, watch=watch, wait=wait)
        self._note(lines)
        return [line for line in lines if isinstance(line, Event)]

    def watch(
        self, text: str, params: Mapping[str, Any] | None = None, /, *, wait: float | None = None, **named: Any
    ) -> AsyncWatching:
        """Run a WATCH and go through its events, one handed over at a time.

        It ends when none comes for `wait` seconds (None: never), or with its own `cancel`; when the watch is cancelled
        otherwise that is E8002.
        """
        return AsyncWatching(self, text, {**(params or {}), **named}, wait)

    def _note(self, lines: list[Line]) -> None:
        self.notices.extend(line for line in lines if isinstance(line, Note) and line.kind == "notice")


class AsyncWatching:
    """The events of one watch. `handle` is known once it is entered or gone through."""

    def __init__(self, session: AsyncSession, text: str, params: Mapping[str, Any], wait: float | None) -> None:
        self._session, self._text, self._params, self._wait = session, text, params, wait
        self.handle = ""
        self._id = ""
        """The session may use the handle's name for something else."""
        self._over = False

    async def start(self) -> AsyncWatching:
        """Make the watch, once."""
        if not self.handle:
            results = await self._session.run(self._text, self._params)
            made = next((result for result in reversed(results) if result.handle), None)
            if made is None:
                raise GraphError("constraint", "the text has no WATCH")
            self.handle, self._id = made.handle or "", made.done.handle or ""
        return self

    async def __aenter__(self) -> AsyncWatching:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel()

    async def cancel(self) -> None:
        self._over = True
        if self.handle:
            await self._session.run(f'CANCEL WATCH #"{self._id}"')

    def _ended(self) -> bool:
        """By its own `cancel`, maybe while it waited."""
        return self._over

    def __aiter__(self) -> AsyncWatching:
        return self

    async def __anext__(self) -> Event:
        await self.start()
        end = time.monotonic() + (FOR_EVER if self._wait is None else self._wait)
        while not self._over:
            left = max(0.0, end - time.monotonic())
            try:
                lines = await self._session.fetch(1, watch=self._id, wait=left)
            except GraphError:
                if self._ended():
                    break
                raise
            self._session._note(lines)
            for line in lines:
                if isinstance(line, Event):
                    return line
                # A notice is no end, except that of a watch that was cancelled for its full buffer.
                self._over = self._over or (isinstance(line, Note) and line.code == "E8005")
            if not lines:
                break
        raise StopAsyncIteration


def _id(delivery: Event | str) -> str:
    if isinstance(delivery, Event):
        if delivery.delivery_id is None:
            raise GraphError("constraint", f"a {delivery.type} event is not a delivery: there is nothing to settle")
        return delivery.delivery_id
    return delivery
