"""How an actor reaches its queues: the dialect's own routes, over HTTP or called in this process."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, NamedTuple, Protocol

from ackwise.broker import AsyncBroker
from ackwise.client.servers import base_of, is_server
from ackwise.client.wires.aio import AioWire
from ackwise.client.wires.reply import Broken, Unsent
from ackwise.connect import open_store
from ackwise.core.errors import BadInput, BadStoreURL, OutcomeUnknown, StoreUnavailable
from ackwise.dialects.http import Call
from ackwise.dialects.pushpop import pushpop_routes
from ackwise.server.routing import Table
from ackwise.store.clock import Clock
from ackwise.store.url import Durability

TIMEOUT = 30.0
LARGEST_BODY = 64 << 20


class Said(NamedTuple):
    """A status and a body, as the dialect says them."""

    status: int
    body: bytes


class Door(Protocol):
    async def ask(self, method: str, path: str, query: str, body: bytes) -> Said: ...

    async def close(self) -> None: ...


class HTTPDoor:
    """A server. Nothing is repeated: a push has no name by which its second try would be known."""

    def __init__(self, url: str) -> None:
        self._base = base_of(url)
        self._wire = AioWire(self._base)

    async def ask(self, method: str, path: str, query: str, body: bytes) -> Said:
        try:
            reply = await self._wire.request(method, f"{path}?{query}" if query else path, body, TIMEOUT)
        except Unsent as problem:
            raise StoreUnavailable(f"no server answers at {self._base}: {problem}") from None
        except Broken as problem:
            raise OutcomeUnknown(
                f"{self._base} did not answer, so it may or may not have happened: {problem}"
            ) from None
        return Said(reply.status, reply.body)

    async def close(self) -> None:
        await self._wire.close()


class StoreDoor:
    """A store of this process: the same routes, without a socket."""

    def __init__(self, broker: AsyncBroker, default_priority: int) -> None:
        self._broker = broker
        self._table = Table(pushpop_routes(broker, default_priority=default_priority))

    async def ask(self, method: str, path: str, query: str, body: bytes) -> Said:
        found = self._table.find(method, path.encode())
        assert isinstance(found, tuple), path
        scope = {"method": method, "path": path, "query_string": query.encode(), "headers": []}

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        reply = await found[0](Call(scope, receive, found[1], LARGEST_BODY))
        return Said(reply.status, reply.body)

    async def close(self) -> None:
        await self._broker.close()


async def open_door(url: str, clock: Clock | None, durability: Durability | None, default_priority: int) -> Door:
    if is_server(url):
        if clock is not None or durability is not None or default_priority:
            raise BadStoreURL(f"{url!r}: a server's clock, durability and default priority are its own")
        return HTTPDoor(url)
    store = await asyncio.to_thread(open_store, url, clock=clock, durability=durability)
    try:
        return StoreDoor(await AsyncBroker.start(store), default_priority)
    except BaseException:
        store.close()
        raise


def checked_url(url: object) -> str:
    if not isinstance(url, str):
        raise BadInput(f"url must be a string, not {type(url).__name__}")
    return url
