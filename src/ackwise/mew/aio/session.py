"""Sessions of the Python API."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from ackwise.client.server_url import is_server
from ackwise.clock import Clock
from ackwise.core.errors import BadInput
from ackwise.engine.statement_limits import DEFAULT_LIMITS, lower_limits
from ackwise.graph.errors import GraphError
from ackwise.graph.watch_options import MOST_WATCHES
from ackwise.mew.aio.backends import AsyncBackend, AsyncLocalBackend, AsyncRemoteBackend
from ackwise.mew.connections import AsyncLocalBroker
from ackwise.protocols.mew.output_records import Emit, EventRecord, Line, Note, Result, error_from
from ackwise.protocols.mew.session import BLOCKED_FOR
from ackwise.protocols.mew.session import MewSession as SessionState

FOR_EVER = 3600.0 * 24 * 365
MOST_NOTICES = 1000


class AsyncSession:
    """A connection to a graph, in a store of this process or on a server. It opens at first use.

    `actor` is the id of the node that `#self` and `current_actor()` stand for. `close` ends the session cleanly and
    releases its deliveries. An exception that leaves a `with` block counts as a lost connection.
    `limits` lowers the limits of one statement: `{"seconds": 1, "rows": 1000, "bytes": 1 << 20, "changes": 100}`.
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
        self._state = SessionState(
            session,
            actor=actor,
            most_watches=MOST_WATCHES if max_watches is None else max_watches,
            blocked_for=BLOCKED_FOR if blocked_for is None else blocked_for,
            limits=DEFAULT_LIMITS.lowered(lower),
        )
        self._backend: AsyncBackend | None = None
        self.notices: deque[Note] = deque(maxlen=MOST_NOTICES)
        """The latest notices of watches, such as E8003."""

    @property
    def id(self) -> str:
        return self._state.id

    @property
    def names(self) -> dict[str, str]:
        """Ids of entities by the session's names."""
        return self._state.names

    async def _opened(self) -> AsyncBackend:
        if self._backend is None:
            if is_server(self._url):
                options: dict[str, Any] = {"actor": self._state.actor} if self._state.actor is not None else {}
                if self._limits is not None:
                    options["limits"] = dict(self._limits)
                self._backend = AsyncRemoteBackend(self._url, self.id, options, self.names)
            else:
                broker = await AsyncLocalBroker.open(self._url, self._clock)
                self._backend = AsyncLocalBackend(broker, self._state, owned=True)
        return self._backend

    async def another(self, *, actor: str | None = None) -> AsyncSession:
        """Open another session on the same store or server."""
        backend = await self._opened()
        session = AsyncSession(self._url, actor=actor, clock=self._clock, limits=self._limits)
        if isinstance(backend, AsyncLocalBackend):
            session._backend = AsyncLocalBackend(backend.broker, session._state, owned=False)
        return session

    async def __aenter__(self) -> AsyncSession:
        await self._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(lost=problem is not None)

    async def close(self, *, lost: bool = False) -> None:
        """End the session. With `lost` it ends as after a lost connection."""
        if self._backend is not None:
            backend, self._backend = self._backend, None
            await backend.close(lost=lost)

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
        """Run a text, and pass each line to `emit` as it comes. Returns False after any error."""
        backend = await self._opened()
        return await backend.run(text, params or {}, emit, above=above, keep_going=keep_going, events=events)

    async def run(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> list[Result]:
        """Run a text. The first statement that fails raises `MewError`. Those before it keep their effect.

        Outside a transaction the mutations of the text commit together. A minimum cardinality that is not met undoes
        them.
        """
        lines: list[Line] = []
        await self.stream(text, lines.append, {**(params or {}), **named})
        self._note(lines)
        for line in lines:
            if isinstance(line, Note) and line.kind == "error":
                raise error_from(line)
        return [line for line in lines if isinstance(line, Result)]

    async def query(self, text: str, params: Mapping[str, Any] | None = None, /, **named: Any) -> list[dict[str, Any]]:
        """Run a text. Returns the rows of its last statement as dictionaries by column."""
        results = await self.run(text, params, **named)
        return results[-1].records if results else []

    async def ack(self, delivery: EventRecord | str) -> Result:
        return (await self.run("ACK $delivery", {"delivery": _id(delivery)}))[-1]

    async def nack(self, delivery: EventRecord | str, *, retry: bool = True) -> Result:
        """Report a failure: the item is delivered again or, without `retry`, becomes a dead letter."""
        text = "NACK $delivery" if retry else "NACK $delivery [no_retry]"
        return (await self.run(text, {"delivery": _id(delivery)}))[-1]

    # events

    async def fetch(self, most: int = 100, *, watch: str | None = None, wait: float = 0.0) -> list[Line]:
        """Fetch events and notices in order. Waits up to `wait` seconds for the first."""
        lines: list[Line] = []
        await (await self._opened()).fetch(most, watch, wait, lines.append)
        return lines

    async def describe(self, what: str, emit: Emit) -> None:
        """Emit the types (`dt`), or the number of entities of each (`dg`)."""
        await (await self._opened()).describe(what, emit)

    async def events(self, most: int = 100, *, watch: str | None = None, wait: float = 0.0) -> list[EventRecord]:
        """Fetch events of all watches, or of one by its handle. Waits up to `wait` seconds for the first."""
        lines = await self.fetch(most, watch=watch, wait=wait)
        self._note(lines)
        return [line for line in lines if isinstance(line, EventRecord)]

    def watch(
        self, text: str, params: Mapping[str, Any] | None = None, /, *, wait: float | None = None, **named: Any
    ) -> AsyncWatchStream:
        """Run a WATCH and iterate over its events. Each step fetches one event.

        The iteration ends after `wait` seconds without an event (None: never), or after `cancel`. If the watch is
        cancelled otherwise, it raises E8002.
        """
        return AsyncWatchStream(self, text, {**(params or {}), **named}, wait)

    def _note(self, lines: list[Line]) -> None:
        self.notices.extend(line for line in lines if isinstance(line, Note) and line.kind == "notice")


class AsyncWatchStream:
    """The events of one watch. `handle` is set by `start`, by a `with` block, or by the first event."""

    def __init__(self, session: AsyncSession, text: str, params: Mapping[str, Any], wait: float | None) -> None:
        self._session, self._text, self._params, self._wait = session, text, params, wait
        self.handle = ""
        self._id = ""
        """The id of the watch: the session may give the handle's name to another entity."""
        self._is_over = False

    async def start(self) -> AsyncWatchStream:
        """Create the watch, once."""
        if not self.handle:
            results = await self._session.run(self._text, self._params)
            watch = next((result for result in reversed(results) if result.handle), None)
            if watch is None:
                raise GraphError("constraint", "the text has no WATCH")
            self.handle, self._id = watch.handle or "", watch.done.handle or ""
        return self

    async def __aenter__(self) -> AsyncWatchStream:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel()

    async def cancel(self) -> None:
        self._is_over = True
        if self.handle:
            await self._session.run(f'CANCEL WATCH #"{self._id}"')

    def _is_cancelled(self) -> bool:
        """Whether `cancel` was called, maybe during a wait."""
        return self._is_over

    def __aiter__(self) -> AsyncWatchStream:
        return self

    async def __anext__(self) -> EventRecord:
        await self.start()
        end = time.monotonic() + (FOR_EVER if self._wait is None else self._wait)
        while not self._is_over:
            left = max(0.0, end - time.monotonic())
            try:
                lines = await self._session.fetch(1, watch=self._id, wait=left)
            except GraphError:
                if self._is_cancelled():
                    break
                raise
            self._session._note(lines)
            for line in lines:
                if isinstance(line, EventRecord):
                    return line
                # E8005 is the last notice: the watch was cancelled because its buffer was full.
                self._is_over = self._is_over or (isinstance(line, Note) and line.code == "E8005")
            if not lines:
                break
        raise StopAsyncIteration


def _id(delivery: EventRecord | str) -> str:
    if isinstance(delivery, EventRecord):
        if delivery.delivery_id is None:
            raise GraphError(
                "constraint", f"an event of type {delivery.type} is no delivery; settle only events of type consumed"
            )
        return delivery.delivery_id
    return delivery
