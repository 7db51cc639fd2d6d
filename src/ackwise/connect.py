"""The composition root: a URL becomes a store, a broker and a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import TracebackType
from typing import Any

import msgspec

from ackwise.broker import AsyncBroker, Broker
from ackwise.client import AsyncConnection, Connection
from ackwise.core.errors import BadStoreURL
from ackwise.store.clock import Clock
from ackwise.store.port import Store
from ackwise.store.sqlite import SQLiteStore
from ackwise.store.url import Durability, StoreURL, parse


def connect(url: str, *, clock: Clock | None = None, durability: Durability | None = None) -> Connection:
    """Open a store and use it from threads.

    Usage::

        with ackwise.connect("sqlite:///queue.db") as queue:
            queue.push("orders", {"id": 1})

    `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://host/database`.
    """
    store = open_store(url, clock=clock, durability=durability)
    try:
        return Connection(Broker(store))
    except BaseException:
        store.close()
        raise


def connect_async(url: str, *, clock: Clock | None = None, durability: Durability | None = None) -> Connecting:
    """Open a store and use it from asyncio: `async with connect_async(url) as queue`, or `await` it and close it."""
    return Connecting(url, clock, durability)


class Connecting:
    """A connection that opens when it is awaited or entered."""

    def __init__(self, url: str, clock: Clock | None, durability: Durability | None) -> None:
        self._url, self._clock, self._durability = url, clock, durability
        self._connection: AsyncConnection | None = None

    async def _open(self) -> AsyncConnection:
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
    if str(url).startswith(("http://", "https://")):
        raise BadStoreURL(
            f"{url!r}: a server over HTTP is not in this version; "
            "use sqlite:///path/to/file.db or postgresql://host/database"
        )
    return parse(url)
