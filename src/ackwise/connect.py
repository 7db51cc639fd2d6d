"""Composition root: turns a URL into a store and broker, or into a connection to a server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from ackwise.broker import AsyncBroker, Broker
from ackwise.client import AsyncConnection, Connection
from ackwise.client import tracing as spans
from ackwise.client.http_adapters import open_adapter, open_async_adapter
from ackwise.client.resilience import Resilience
from ackwise.client.server_url import base_of, is_server
from ackwise.client.transport import AsyncTransport, Transport
from ackwise.clock import Clock
from ackwise.core.errors import BadStoreURL, StoreUnavailable
from ackwise.core.events import EventStream
from ackwise.core.extras import is_installed, needed
from ackwise.core.validation import Seconds
from ackwise.store.database_store import DatabaseStore
from ackwise.store.sqlite import SQLiteStore
from ackwise.wire.store_url import Durability, StoreURL, parse
from ackwise.wire.timestamps import seconds

if TYPE_CHECKING:
    from ackwise.client.aio.http_transport import AsyncHTTPTransport
    from ackwise.client.sync.http_transport import HTTPTransport
    from ackwise.dashboard.mounted import MountedDashboard


log = logging.getLogger("ackwise.client")
FIRST_PATIENCE = 15.0
"""Seconds that a first connection waits for a PostgreSQL that is not up yet."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0

URL = str | list[str] | tuple[str, ...]
"""URL of a store or a server, or a list of URLs of servers with the same store."""


def connect(
    url: URL,
    *,
    clock: Clock | None = None,
    durability: Durability | None = None,
    resilience: Resilience | None = None,
    patience: Seconds | None = None,
    tracing: bool | None = None,
) -> Connection:
    """Open a store or connect to a server, for use from threads.

    Usage::

        with ackwise.connect("sqlite:///queue.db") as queue:
            queue.push("orders", {"id": 1})

    The URL is `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://host/database` or `http://host:6632`.
    With several servers, `["http://a:6632", "http://b:6632"]`, the connection uses one that works. `resilience` says
    when it tries the others. A single server or a PostgreSQL that is not up yet has `patience` seconds, 15 by default.
    With `tracing` the connection makes OpenTelemetry spans, by default if the program has set up OpenTelemetry.
    """
    traced = spans.is_wanted(tracing)
    if isinstance(url, list | tuple) or is_server(url):
        return _connection(_transport(url, clock, durability, resilience, patience=_patience(patience)), traced)
    store = _open_when_up(url, clock, durability, _patience(patience))
    try:
        return _connection(Broker(store), traced)
    except BaseException:
        store.close()
        raise


def connect_async(
    url: URL,
    *,
    clock: Clock | None = None,
    durability: Durability | None = None,
    resilience: Resilience | None = None,
    patience: Seconds | None = None,
    tracing: bool | None = None,
) -> Connecting:
    """Open a store or connect to a server, for asyncio.

    Use `async with connect_async(url) as queue`, or `await connect_async(url)` and close the connection yourself.
    """
    return Connecting(url, clock, durability, resilience, _patience(patience), traced=spans.is_wanted(tracing))


class Connecting:
    """A connection that opens when it is awaited or entered."""

    def __init__(
        self,
        url: URL,
        clock: Clock | None,
        durability: Durability | None,
        resilience: Resilience | None = None,
        patience: float | None = None,
        *,
        traced: bool = False,
    ) -> None:
        self._traced = traced
        self._url, self._clock, self._durability, self._resilience = url, clock, durability, resilience
        self._patience = patience
        self._connection: AsyncConnection | None = None

    async def _open(self) -> AsyncConnection:
        if isinstance(self._url, list | tuple) or is_server(self._url):
            transport = await _async_transport(
                self._url, self._clock, self._durability, self._resilience, self._patience
            )
            return _async_connection(transport, self._traced)
        store = await asyncio.to_thread(_open_when_up, self._url, self._clock, self._durability, self._patience)
        try:
            return _async_connection(await AsyncBroker.start(store), self._traced)
        except BaseException:
            store.close()
            raise

    if not TYPE_CHECKING:  # type checkers report the missing attribute themselves

        def __getattr__(self, name: str) -> Any:
            """Explain the error of a caller who forgot `await`."""
            raise AttributeError(
                f"connect_async is not awaited, so it has no {name!r}; write `queue = await connect_async(url)` "
                "or `async with connect_async(url) as queue:`"
            )

    def __await__(self) -> Generator[Any, None, AsyncConnection]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncConnection:
        self._connection = await self._open()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            await self._connection.close()


def reach(url: str, *, duties: bool = True) -> Broker | HTTPTransport:
    """The broker or transport below a connection. It takes commands. Without `duties` it does not sweep the store."""
    if is_server(url):
        return _transport(url, None, None)
    store = open_store(url)
    try:
        return Broker(store, background=duties)
    except BaseException:
        store.close()
        raise


def dashboard_app(url: str, *, read_only: bool = False) -> MountedDashboard:
    """The dashboard as an ASGI application, to mount in an application of yours at any path.

    Usage::

        dashboard = ackwise.dashboard_app("sqlite:///queue.db")
        app = Starlette(routes=[Mount("/queues", dashboard)])

    It opens the store at its first request. Call `await dashboard.aclose()` when your application ends. Your
    application decides who may open the pages. With `read_only` the pages show no buttons and refuse changes.
    """
    _parsed(url)
    with needed("server", "dashboard_app"):
        # Imported here, so that a program without a dashboard loads no web framework.
        from ackwise.dashboard.mounted import MountedDashboard

    return MountedDashboard(lambda: open_store(url), read_only=read_only)


def _connection(transport: Transport, traced: bool) -> Connection:
    if traced:
        from ackwise.client.sync.traced_transport import TracedTransport

        transport = TracedTransport(transport)
    return Connection(transport)


def _async_connection(transport: AsyncTransport, traced: bool) -> AsyncConnection:
    if traced:
        from ackwise.client.aio.traced_transport import AsyncTracedTransport

        transport = AsyncTracedTransport(transport)
    return AsyncConnection(transport)


def _open_when_up(
    url: str, clock: Clock | None, durability: Durability | None, patience: float | None
) -> DatabaseStore:
    """Open a store. Waits for a PostgreSQL that is not up yet."""
    waits = FIRST_PATIENCE if patience is None else patience
    end, pause = time.monotonic() + waits, _FIRST_PAUSE
    while True:
        try:
            return open_store(url, clock=clock, durability=durability)
        except StoreUnavailable as problem:
            if not url.startswith("postgres") or time.monotonic() + pause > end:
                raise
            if pause == _FIRST_PAUSE:
                log.warning("%s; trying again for %g seconds", problem, waits)
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, 2 * pause)


def _patience(duration: Seconds | None) -> float | None:
    return None if duration is None else seconds(duration, "patience")


def _transport(
    url: URL,
    clock: Clock | None,
    durability: Durability | None,
    resilience: Resilience | None = None,
    *,
    patience: float | None = None,
) -> HTTPTransport:
    # Imported here, so that a program that opens a store starts faster.
    from ackwise.client.sync.failover import Failover
    from ackwise.client.sync.http_transport import HTTPTransport

    bases, resilience = _servers(url, durability, resilience)
    adapter = open_adapter(bases[0])
    if resilience is not None:
        adapter = Failover([(bases[0], adapter), *((base, open_adapter(base)) for base in bases[1:])], resilience)
    pauses = None if resilience is None else resilience.pauses
    transport = HTTPTransport(adapter, ", ".join(bases), _local(clock), pauses=pauses)
    try:
        transport.hello(patience)
    except BaseException:
        adapter.close()
        raise
    return transport


async def _async_transport(
    url: URL,
    clock: Clock | None,
    durability: Durability | None,
    resilience: Resilience | None,
    patience: float | None,
) -> AsyncHTTPTransport:
    from ackwise.client.aio.failover import AsyncFailover
    from ackwise.client.aio.http_transport import AsyncHTTPTransport

    bases, resilience = _servers(url, durability, resilience)
    adapter = open_async_adapter(bases[0])
    if resilience is not None:
        adapter = AsyncFailover(
            [(bases[0], adapter), *((base, open_async_adapter(base)) for base in bases[1:])], resilience
        )
    pauses = None if resilience is None else resilience.pauses
    transport = AsyncHTTPTransport(adapter, ", ".join(bases), _local(clock), pauses=pauses)
    try:
        await transport.hello(patience)
    except BaseException:
        await adapter.close()
        raise
    return transport


def _servers(
    url: URL, durability: Durability | None, resilience: Resilience | None
) -> tuple[list[str], Resilience | None]:
    """Base URLs of the servers, and the resilience. Several servers always have one."""
    if durability is not None:
        raise BadStoreURL(f"{url!r}: a server's durability is its own; start it with --durability {durability}")
    urls = list(url) if isinstance(url, list | tuple) else [url]
    if not urls or not all(map(is_server, urls)):
        raise BadStoreURL(f"{url!r}: a list may contain only URLs of servers, such as http://host:6632")
    bases = [base_of(server) for server in urls]
    return bases, resilience or (Resilience() if len(bases) > 1 else None)


def _local(clock: Clock | None) -> Callable[[], int]:
    """The clock that measures the age of a server's time."""
    return clock.now if clock is not None else lambda: time.monotonic_ns() // 1000


def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    durability: Durability | None = None,
    events: EventStream | None = None,
    graph: bool = False,
) -> DatabaseStore:
    """Open the store of a URL, without a broker. Pass `events` to hear what happens while it opens.

    With `graph` the store gets the tables and commands of MEW. A store that has the tables gets the commands too, so
    that its deliveries expire and `audit` checks them. Without the extra `mew` that is left to other processes.
    """
    target = _parsed(url)
    if durability is not None:
        if durability not in ("full", "normal"):
            raise BadStoreURL(f"durability is full or normal, not {durability!r}")
        target = msgspec.structs.replace(target, durability=durability)
    store = _opened(target, clock, events)
    try:
        if graph or (is_installed("re2") and store.has_tables("mew")):
            # Imported here, so that a program that only uses queues does not load the graph.
            from ackwise.graph.engine.extension import GRAPH

            store.extensions.add(GRAPH)
    except BaseException:
        store.close()
        raise
    return store


def _opened(target: StoreURL, clock: Clock | None, events: EventStream | None) -> DatabaseStore:
    if target.scheme == "sqlite":
        return SQLiteStore(target, clock=clock, events=events)
    # Imported here, so that a program that uses SQLite does not load a PostgreSQL driver.
    from ackwise.store.postgres import PostgresStore

    return PostgresStore(target, clock=clock, events=events)


def _parsed(url: str) -> StoreURL:
    if is_server(url):
        raise BadStoreURL(
            f"{url!r} is the URL of a server, but the store itself is needed; "
            "use sqlite:///path/to/file.db or postgresql://host/database"
        )
    return parse(url)
