"""The composition root: a URL becomes a store and a broker, or a wire to a server, and a connection over it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from ackwise.broker import AsyncBroker, Broker
from ackwise.client import AsyncConnection, Connection
from ackwise.client.breaking import Resilience
from ackwise.client.servers import base_of, is_server
from ackwise.client.wires.reply import AsyncWire, Wire
from ackwise.core.errors import BadStoreURL
from ackwise.store.clock import Clock
from ackwise.store.port import Store
from ackwise.store.sqlite import SQLiteStore
from ackwise.store.url import Durability, StoreURL, parse

if TYPE_CHECKING:
    from ackwise.client.sync.http import HTTPTransport


URL = str | list[str] | tuple[str, ...]
"""Of a store or a server; several servers of one store as a list."""


def connect(
    url: URL,
    *,
    clock: Clock | None = None,
    durability: Durability | None = None,
    resilience: Resilience | None = None,
) -> Connection:
    """Open a store, or reach a server, and use it from threads.

    Usage::

        with ackwise.connect("sqlite:///queue.db") as queue:
            queue.push("orders", {"id": 1})

    `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://host/database` or `http://host:6632`. Of several
    servers, `["http://a:6632", "http://b:6632"]`, one that works is used; `resilience` says when others are tried.
    """
    if isinstance(url, list | tuple) or is_server(url):
        return _over_http(url, clock, durability, resilience)
    store = open_store(url, clock=clock, durability=durability)
    try:
        return Connection(Broker(store))
    except BaseException:
        store.close()
        raise


def connect_async(
    url: URL,
    *,
    clock: Clock | None = None,
    durability: Durability | None = None,
    resilience: Resilience | None = None,
) -> Connecting:
    """The same for asyncio: `async with connect_async(url) as queue`, or `await` it and close it."""
    return Connecting(url, clock, durability, resilience)


class Connecting:
    """A connection that opens when it is awaited or entered."""

    def __init__(
        self, url: URL, clock: Clock | None, durability: Durability | None, resilience: Resilience | None = None
    ) -> None:
        self._url, self._clock, self._durability, self._resilience = url, clock, durability, resilience
        self._connection: AsyncConnection | None = None

    async def _open(self) -> AsyncConnection:
        if isinstance(self._url, list | tuple) or is_server(self._url):
            return await _over_http_async(self._url, self._clock, self._durability, self._resilience)
        store = await asyncio.to_thread(open_store, self._url, clock=self._clock, durability=self._durability)
        try:
            return AsyncConnection(await AsyncBroker.start(store))
        except BaseException:
            store.close()
            raise

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
    """What a connection stands on, for whoever speaks in commands. Without `duties` others must sweep the store."""
    if is_server(url):
        return _transport(url, None, None)
    store = open_store(url)
    try:
        return Broker(store, background=duties)
    except BaseException:
        store.close()
        raise


def _over_http(
    url: URL, clock: Clock | None, durability: Durability | None, resilience: Resilience | None
) -> Connection:
    return Connection(_transport(url, clock, durability, resilience))


def _transport(
    url: URL, clock: Clock | None, durability: Durability | None, resilience: Resilience | None = None
) -> HTTPTransport:
    # Imported when asked for: whoever opens a store need not load an HTTP client.
    from ackwise.client.sync.failover import Failover
    from ackwise.client.sync.http import HTTPTransport
    from ackwise.client.wires.threads import ThreadWire

    bases, resilience = _servers(url, durability, resilience)
    wire: Wire = ThreadWire(bases[0])
    if resilience is not None:
        wire = Failover([(bases[0], wire), *((base, ThreadWire(base)) for base in bases[1:])], resilience)
    pauses = None if resilience is None else resilience.pauses
    transport = HTTPTransport(wire, ", ".join(bases), _local(clock), pauses=pauses)
    try:
        transport.hello()
    except BaseException:
        wire.close()
        raise
    return transport


async def _over_http_async(
    url: URL, clock: Clock | None, durability: Durability | None, resilience: Resilience | None
) -> AsyncConnection:
    from ackwise.client.aio.failover import AsyncFailover
    from ackwise.client.aio.http import AsyncHTTPTransport
    from ackwise.client.wires.aio import AioWire

    bases, resilience = _servers(url, durability, resilience)
    wire: AsyncWire = AioWire(bases[0])
    if resilience is not None:
        wire = AsyncFailover([(bases[0], wire), *((base, AioWire(base)) for base in bases[1:])], resilience)
    pauses = None if resilience is None else resilience.pauses
    transport = AsyncHTTPTransport(wire, ", ".join(bases), _local(clock), pauses=pauses)
    try:
        await transport.hello()
    except BaseException:
        await wire.close()
        raise
    return AsyncConnection(transport)


def _servers(
    url: URL, durability: Durability | None, resilience: Resilience | None
) -> tuple[list[str], Resilience | None]:
    """Where to go; several servers are never without resilience."""
    if durability is not None:
        raise BadStoreURL(f"{url!r}: a server's durability is its own; start it with --durability {durability}")
    urls = list(url) if isinstance(url, list | tuple) else [url]
    if not urls or not all(map(is_server, urls)):
        raise BadStoreURL(f"{url!r}: several URLs are those of servers, such as http://host:6632")
    bases = [base_of(one) for one in urls]
    return bases, resilience or (Resilience() if len(bases) > 1 else None)


def _local(clock: Clock | None) -> Callable[[], int]:
    """What measures how long ago a server told its time."""
    return clock.now if clock is not None else lambda: time.monotonic_ns() // 1000


def open_store(url: str, *, clock: Clock | None = None, durability: Durability | None = None) -> Store:
    """The store behind a URL, without a broker."""
    where = _parsed(url)
    if durability is not None:
        if durability not in ("full", "normal"):
            raise BadStoreURL(f"durability is full or normal, not {durability!r}")
        where = msgspec.structs.replace(where, durability=durability)
    if where.scheme == "sqlite":
        return SQLiteStore(where, clock=clock)
    # Imported when asked for: whoever uses SQLite need not load a PostgreSQL driver.
    from ackwise.store.postgres import PostgresStore

    return PostgresStore(where, clock=clock)


def _parsed(url: str) -> StoreURL:
    if is_server(url):
        raise BadStoreURL(
            f"{url!r} is a server, and this needs the store itself; "
            "use sqlite:///path/to/file.db or postgresql://host/database"
        )
    return parse(url)
