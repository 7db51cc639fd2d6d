"""Backends of an actor: a server over HTTP, or the routes in this process. Has the error `QueueLocked`."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, NamedTuple, Protocol

from ackwise.broker import AsyncBroker
from ackwise.client.http_adapters import open_async_adapter
from ackwise.client.http_adapters.reply import Broken, Unsent
from ackwise.client.server_url import base_of, is_server
from ackwise.clock import Clock
from ackwise.connect import open_store
from ackwise.core.errors import BadInput, BadStoreURL, Conflict, OutcomeUnknown, StoreUnavailable
from ackwise.protocols.http_request import Call
from ackwise.protocols.pushpop import pushpop_routes
from ackwise.server.route_table import RouteTable
from ackwise.wire.store_url import Durability

TIMEOUT = 30.0
LARGEST_BODY = 64 << 20


class Response(NamedTuple):
    """HTTP status and body."""

    status: int
    body: bytes


class Backend(Protocol):
    """Sends a request to the PushPop routes."""

    async def call(self, method: str, path: str, query: str, body: bytes) -> Response: ...

    async def close(self) -> None: ...


class HTTPBackend:
    """Sends requests to a server. Never repeats one: a push has no id by which a server could detect the repeat."""

    def __init__(self, url: str) -> None:
        self._base = base_of(url)
        self._adapter = open_async_adapter(self._base)

    async def call(self, method: str, path: str, query: str, body: bytes) -> Response:
        try:
            reply = await self._adapter.request(method, f"{path}?{query}" if query else path, body, TIMEOUT)
        except Unsent as problem:
            raise StoreUnavailable(f"no server answers at {self._base}: {problem}") from None
        except Broken as problem:
            raise OutcomeUnknown(
                f"{self._base} did not answer, so it may or may not have happened: {problem}"
            ) from None
        return Response(reply.status, reply.body)

    async def close(self) -> None:
        await self._adapter.close()


class StoreBackend:
    """Calls the same routes on a store in this process, without a socket."""

    def __init__(self, broker: AsyncBroker, default_priority: int) -> None:
        self._broker = broker
        self._table = RouteTable(pushpop_routes(broker, default_priority=default_priority))

    async def call(self, method: str, path: str, query: str, body: bytes) -> Response:
        route = self._table.find(method, path.encode())
        assert isinstance(route, tuple), path
        scope = {"method": method, "path": path, "query_string": query.encode(), "headers": []}

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        reply = await route[0](Call(scope, receive, route[1], LARGEST_BODY))
        return Response(reply.status, reply.body)

    async def close(self) -> None:
        await self._broker.close()


async def open_backend(url: str, clock: Clock | None, durability: Durability | None, default_priority: int) -> Backend:
    """Open the backend of a URL: a server or a store."""
    if is_server(url):
        if clock is not None or durability is not None or default_priority:
            raise BadStoreURL(f"{url!r}: a server's clock, durability and default priority are its own")
        return HTTPBackend(url)
    store = await asyncio.to_thread(open_store, url, clock=clock, durability=durability)
    try:
        return StoreBackend(await AsyncBroker.start(store), default_priority)
    except BaseException:
        store.close()
        raise


def checked_url(url: object) -> str:
    if not isinstance(url, str):
        raise BadInput(f"url must be a string, not {type(url).__name__}")
    return url


class QueueLocked(Conflict):
    """Queue is locked pending acknowledgement"""

    code = "queue_locked"

    def __init__(self, lock_expires_at: float) -> None:
        super().__init__(lock_expires_at=lock_expires_at)
        self.lock_expires_at = lock_expires_at
