"""PushPop actor of one queue, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

import msgspec

from ackwise.client.payloads import as_json
from ackwise.clock import Clock
from ackwise.core.errors import BadInput, Draining, Overloaded, PayloadTooLarge, StoreError, StoreUnavailable
from ackwise.protocols.pushpop.vocabulary import is_queue_id
from ackwise.pushpop.backends import Backend, QueueLocked, Response, checked_url, open_backend
from ackwise.wire.store_url import Durability

Item = dict[str, Any]
Answered = dict[str, Any]
Kinds = type | tuple[type, ...]

_ERRORS = {400: BadInput, 413: PayloadTooLarge, 429: Overloaded, 503: StoreUnavailable}
_LOCK_REFUSALS = (400, 404, 410)
_LOCK_ANSWERS: dict[str, dict[str, Kinds]] = {
    "acknowledge": {"success": bool, "items_acknowledged": int},
    "extend-lock": {"lock_id": str, "new_expires_at": (int, float)},
    "deadletter": {"success": bool, "message": str},
}
_read = msgspec.json.Decoder(dict[str, Any]).decode


class PushPopActor:
    """A PushPop queue, for asyncio: push items with priorities, pop them, or hold them under a lock until you ack.

    Usage::

        async with PushPopActor("orders", "http://127.0.0.1:6632") as actor:
            await actor.push({"id": 1}, priority=2)
            popped = await actor.pop_with_ack(ttl_seconds=60)
            await actor.acknowledge(popped["lock_id"])

    `url` is a server (`http://…`) or a store (`sqlite:///queue.db`, `postgresql://…`), which the actor opens in this
    process. The actor connects with `async with` or with the first call.
    """

    def __init__(
        self,
        queue: str,
        url: str,
        *,
        clock: Clock | None = None,
        durability: Durability | None = None,
        default_priority: int = 0,
    ) -> None:
        self.queue = _checked(queue)
        self._url = checked_url(url)
        self._store_options = (clock, durability, default_priority)
        self._opening = asyncio.Lock()
        self._backend: Backend | None = None
        self._closed = False
        self._root = self

    def another(self, queue: str) -> PushPopActor:
        """The actor of another queue on the same connection. Closing this actor closes both."""
        sibling = PushPopActor(queue, self._url)
        sibling._root = self._root
        return sibling

    # pushing

    async def push(self, item: Item, priority: int | None = None) -> bool:
        """Push an item. Returns True when the item is on disk. Priority 0 is popped first."""
        await self._push(_body(item, priority))
        return True

    async def push_many(self, items: Iterable[Item | tuple[Item, int]]) -> int:
        """Push up to 1000 items, or (item, priority) pairs, in one commit. Returns how many."""
        listed = [_body(*item) if isinstance(item, tuple) else _body(item, None) for item in items]
        answer = await self._push({"items": listed}, items_pushed=int)
        return int(answer["items_pushed"])

    # popping

    async def pop(self, count: int = 1) -> list[Item]:
        """Pop items and remove them from the queue. Raises `QueueLocked` while a consumer holds the lock."""
        response = await self._call("POST", "pop", _query(count=_whole(count, "count")))
        if response.status == 423:
            raise QueueLocked(_body_with(response, lock_expires_at=(int, float))["lock_expires_at"])
        items: list[Item] = _success_body(response, items=list)["items"]
        return items

    async def pop_with_ack(
        self, ttl_seconds: int = 30, count: int = 1, *, allow_competing_consumers: bool = False
    ) -> Answered:
        """Pop items under a lock that lasts `ttl_seconds`.

        The answer has `items` and `lock_id`. While another consumer holds the lock, `locked` is true and there is no
        `lock_id`. With `allow_competing_consumers` several consumers hold locks at the same time.
        """
        query = _query(
            require_ack="true",
            ttl_seconds=_whole(ttl_seconds, "ttl_seconds"),
            count=_whole(count, "count"),
            allow_competing_consumers="true" if allow_competing_consumers else "false",
        )
        response = await self._call("POST", "pop", query)
        if response.status == 423:
            return {"items": [], "count": 0, "locked": True, **_body_with(response, lock_expires_at=(int, float))}
        return _success_body(response, items=list, locked=bool)

    # locks

    async def acknowledge(self, lock_id: str) -> Answered:
        """Ack all items under the lock. `success` is false if the lock has expired."""
        return await self._with_lock("acknowledge", {"lock_id": lock_id})

    async def extend_lock(self, lock_id: str, additional_ttl_seconds: int = 30) -> Answered:
        """Extend the lock by `additional_ttl_seconds`, counted from its present expiry."""
        return await self._with_lock(
            "extend-lock", {"lock_id": lock_id, "additional_ttl_seconds": additional_ttl_seconds}
        )

    async def dead_letter(self, lock_id: str) -> Answered:
        """Dead-letter all items under the lock."""
        return await self._with_lock("deadletter", {"lock_id": lock_id})

    # status

    async def metadata(self) -> Answered:
        """Count items by priority. While there is a lock, the answer has `_active_lock` with its items."""
        return _success_body(await self._call("GET", "metadata"))

    async def status(self) -> Answered:
        """Return the queue's depth, its lock with the seconds left, and the number of expired locks."""
        return _success_body(await self._call("GET", ""))

    # names of the original actor

    async def Push(self, data: Mapping[str, Any]) -> bool:
        """Push `data["item"]` with `data["priority"]`. See `push`."""
        fields = _mapping(data)
        if "item" not in fields:
            raise BadInput("item is required")
        return await self.push(fields["item"], **{k: v for k, v in fields.items() if k == "priority"})

    async def Pop(self) -> list[Item]:
        """Pop one item. See `pop`."""
        return await self.pop()

    async def PopWithAck(self, data: Mapping[str, Any] | None = None) -> Answered:
        """Pop items under a lock. `data` has the arguments of `pop_with_ack`."""
        known = ("ttl_seconds", "count", "allow_competing_consumers")
        return await self.pop_with_ack(**{k: v for k, v in _mapping(data or {}).items() if k in known})

    async def Acknowledge(self, data: Mapping[str, Any]) -> Answered:
        """Ack all items under the lock `data["lock_id"]`."""
        return await self._with_lock("acknowledge", dict(_mapping(data)))

    async def ExtendLock(self, data: Mapping[str, Any]) -> Answered:
        """Extend the lock `data["lock_id"]`. See `extend_lock`."""
        return await self._with_lock("extend-lock", dict(_mapping(data)))

    async def DeadLetter(self, data: Mapping[str, Any]) -> Answered:
        """Dead-letter all items under the lock `data["lock_id"]`."""
        return await self._with_lock("deadletter", dict(_mapping(data)))

    # the connection

    async def _call(self, method: str, verb: str, query: str = "", body: object = None) -> Response:
        backend = await self._root._open()
        path = f"/queue/{self.queue}/{verb}".rstrip("/")
        return await backend.call(method, path, query, b"" if body is None else as_json(body))

    async def _push(self, body: object, **shape: Kinds) -> Answered:
        return _success_body(await self._call("POST", "push", body=body), success=bool, **shape)

    async def _with_lock(self, verb: str, body: object) -> Answered:
        response = await self._call("POST", verb, body=body)
        if response.status in _LOCK_REFUSALS:
            return _body_with(response, success=bool, message=str)
        return _success_body(response, **_LOCK_ANSWERS[verb])

    async def _open(self) -> Backend:
        async with self._opening:
            if self._closed:
                raise Draining("the actor is closed")
            if self._backend is None:
                self._backend = await open_backend(self._url, *self._store_options)
            return self._backend

    async def close(self) -> None:
        """Close the connection. Locks stay until they expire or a client acks them by id."""
        async with self._opening:
            self._closed = True
            backend, self._backend = self._backend, None
            if backend is not None:
                await backend.close()

    async def __aenter__(self) -> PushPopActor:
        await self._root._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _checked(queue: object) -> str:
    if not isinstance(queue, str) or not is_queue_id(queue):
        raise BadInput("a queue's id has 1 to 64 letters, digits, - and _")
    return queue


def _mapping(data: object) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise BadInput(f"data must be a dict, not {type(data).__name__}")
    return data


def _body(item: object, priority: object) -> dict[str, object]:
    if not isinstance(item, Mapping):
        raise BadInput(f"item must be a dict, not {type(item).__name__}")
    return {"item": item} if priority is None else {"item": item, "priority": priority}


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"{name} must be a whole number, not {type(value).__name__}")
    return value


def _query(**options: object) -> str:
    return urlencode(options)


def _success_body(response: Response, **shape: Kinds) -> Answered:
    """The body of a successful response. Raises the error of any other."""
    if response.status == 200:
        return _body_with(response, **shape)
    body = _body_with(response, success=bool, message=str)
    raise _ERRORS.get(response.status, StoreError)(body["message"])


def _body_with(response: Response, **shape: Kinds) -> Answered:
    """The response's body. Raises `StoreError` if a field is missing, for example in a proxy's error page."""
    try:
        body = _read(response.body)
    except (msgspec.DecodeError, RecursionError):
        body = {}
    if (not body and shape) or not all(isinstance(body.get(name), kinds) for name, kinds in shape.items()):
        raise StoreError(f"the answer {response.status} is not a PushPop server's")
    return body
