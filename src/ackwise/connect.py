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
from ackwise.client.servers import base_of, is_server
from ackwise.core.errors import BadStoreURL
from ackwise.store.clock import Clock
from ackwise.store.port import Store
from ackwise.store.sqlite import SQLiteStore
from ackwise.store.url import Durability, StoreURL, parse

if TYPE_CHECKING:
    from ackwise.client.sync.http import HTTPTransport


def connect(url: str, *, clock: Clock | None = None, durability: Durability | None = None) -> Connection:
    """Open a store, or reach a server, and use it from threads.

    Usage::

        with ackwise.connect("sqlite:///queue.db") as queue:
            queue.push("orders", {"id": 1})

    `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://host/database` or `http://host:6632`.
    """
    if is_server(url):
        return _over_http(url, clock, durability)
    store = open_store(url, clock=clock, durability=durability)
    try:
        return Connection(Broker(store))
    except BaseException:
        store.close()
        raise


def connect_async(url: str, *, clock: Clock | None = None, durability: Durability | None = None) -> Connecting:
    """The same for asyncio: `async with connect_async(url) as queue`, or `await` it and close it."""
    return Connecting(url, clock, durability)


class Connecting:
    """A connection that opens when it is awaited or entered."""

    def __init__(self, url: str, clock: Clock | None, durability: Durability | None) -> None:
        self._url, self._clock, self._durability = url, clock, durability
        self._connection: AsyncConnection | None = None

    async def _open(self) -> AsyncConnection:
        if is_server(self._url):
            return await _over_http_async(self._url, self._clock, self._durability)
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


def _over_http(url: str, clock: Clock | None, durability: Durability | None) -> Connection:
    return Connection(_transport(url, clock, durability))


def _transport(url: str, clock: Clock | None, durability: Durability | None) -> HTTPTransport:
    # Imported when asked for: whoever opens a store need not load an HTTP client.
    from ackwise.client.sync.http import HTTPTransport
    from ackwise.client.wires.threads import ThreadWire

    base = _server(url, durability)
    wire = ThreadWire(base)
    transport = HTTPTransport(wire, base, _local(clock))
    try:
        transport.hello()
    except BaseException:
        wire.close()
        raise
    return transport


async def _over_http_async(url: str, clock: Clock | None, durability: Durability | None) -> AsyncConnection:
    from ackwise.client.aio.http import AsyncHTTPTransport
    from ackwise.client.wires.aio import AioWire

    base = _server(url, durability)
    wire = AioWire(base)
    transport = AsyncHTTPTransport(wire, base, _local(clock))
    try:
        await transport.hello()
    except BaseException:
        await wire.close()
        raise
    return AsyncConnection(transport)


def _server(url: str, durability: Durability | None) -> str:
    if durability is not None:
        raise BadStoreURL(f"{url!r}: a server's durability is its own; start it with --durability {durability}")
    return base_of(url)


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
