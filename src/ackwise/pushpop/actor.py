"""The actor of one queue, for asyncio. Answers are shaped as over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

import msgspec

from ackwise.client.payloads import as_json
from ackwise.core.errors import BadInput, Draining, Overloaded, PayloadTooLarge, StoreError, StoreUnavailable
from ackwise.dialects.pushpop.words import is_queue_id
from ackwise.pushpop.doors import Door, Said, checked_url, open_door
from ackwise.pushpop.locked import QueueLocked
from ackwise.store.clock import Clock
from ackwise.store.url import Durability

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
    """One queue: items with priorities, popped at once or held under a lock until they are acknowledged.

    Usage::

        async with PushPopActor("orders", "http://127.0.0.1:6632") as actor:
            await actor.push({"id": 1}, priority=2)
            popped = await actor.pop_with_ack(ttl_seconds=60)
            await actor.acknowledge(popped["lock_id"])

    `url` is a server's, or a store's (`sqlite:///queue.db`, `postgresql://…`), which is then opened in this process.
    It is opened by the first call, unless `async with` has done so.
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
        self._how = (clock, durability, default_priority)
        self._opening = asyncio.Lock()
        self._door: Door | None = None
        self._closed = False
        self._root = self

    def another(self, queue: str) -> PushPopActor:
        """The actor of another queue over the same connection; closing this one closes both."""
        beside = PushPopActor(queue, self._url)
        beside._root = self._root
        return beside

    # pushing

    async def push(self, item: Item, priority: int | None = None) -> bool:
        """Add an item; 0 is served first. True once it is durable."""
        await self._pushed(_body(item, priority))
        return True

    async def push_many(self, items: Iterable[Item | tuple[Item, int]]) -> int:
        """Add up to 1000 items, or (item, priority) pairs, in one commit: all of them or none."""
        listed = [_body(*one) if isinstance(one, tuple) else _body(one, None) for one in items]
        answer = await self._pushed({"items": listed}, items_pushed=int)
        return int(answer["items_pushed"])

    # popping

    async def pop(self, count: int = 1) -> list[Item]:
        """Take items away for good. `QueueLocked` while somebody holds the lock."""
        said = await self._ask("POST", "pop", _query(count=_whole(count, "count")))
        if said.status == 423:
            raise QueueLocked(_shaped(said, lock_expires_at=(int, float))["lock_expires_at"])
        items: list[Item] = _good(said, items=list)["items"]
        return items

    async def pop_with_ack(
        self, ttl_seconds: int = 30, count: int = 1, *, allow_competing_consumers: bool = False
    ) -> Answered:
        """Take items under a lock. While somebody else holds one, `locked` is true and there is no `lock_id`."""
        query = _query(
            require_ack="true",
            ttl_seconds=_whole(ttl_seconds, "ttl_seconds"),
            count=_whole(count, "count"),
            allow_competing_consumers="true" if allow_competing_consumers else "false",
        )
        said = await self._ask("POST", "pop", query)
        if said.status == 423:
            return {"items": [], "count": 0, "locked": True, **_shaped(said, lock_expires_at=(int, float))}
        return _good(said, items=list, locked=bool)

    # what is done with a lock

    async def acknowledge(self, lock_id: str) -> Answered:
        """Done with everything under the lock; `success` says whether it still was."""
        return await self._with_lock("acknowledge", {"lock_id": lock_id})

    async def extend_lock(self, lock_id: str, additional_ttl_seconds: int = 30) -> Answered:
        """Hold it longer, counted from when it would have run out."""
        return await self._with_lock(
            "extend-lock", {"lock_id": lock_id, "additional_ttl_seconds": additional_ttl_seconds}
        )

    async def dead_letter(self, lock_id: str) -> Answered:
        """Everything under the lock becomes dead letters, to be looked at and redriven."""
        return await self._with_lock("deadletter", {"lock_id": lock_id})

    # looking

    async def metadata(self) -> Answered:
        """Counts by priority and, while there is one, `_active_lock` with what it holds."""
        return _good(await self._ask("GET", "metadata"))

    async def status(self) -> Answered:
        """What waits, the lock and how long it has left, and how many locks ran out."""
        return _good(await self._ask("GET", ""))

    # the actor's own names

    async def Push(self, data: Mapping[str, Any]) -> bool:
        given = _given(data)
        if "item" not in given:
            raise BadInput("item is required")
        return await self.push(given["item"], **{k: v for k, v in given.items() if k == "priority"})

    async def Pop(self) -> list[Item]:
        return await self.pop()

    async def PopWithAck(self, data: Mapping[str, Any] | None = None) -> Answered:
        known = ("ttl_seconds", "count", "allow_competing_consumers")
        return await self.pop_with_ack(**{k: v for k, v in _given(data or {}).items() if k in known})

    async def Acknowledge(self, data: Mapping[str, Any]) -> Answered:
        return await self._with_lock("acknowledge", dict(_given(data)))

    async def ExtendLock(self, data: Mapping[str, Any]) -> Answered:
        return await self._with_lock("extend-lock", dict(_given(data)))

    async def DeadLetter(self, data: Mapping[str, Any]) -> Answered:
        return await self._with_lock("deadletter", dict(_given(data)))

    # the connection

    async def _ask(self, method: str, verb: str, query: str = "", body: object = None) -> Said:
        door = await self._root._opened()
        path = f"/queue/{self.queue}/{verb}".rstrip("/")
        return await door.ask(method, path, query, b"" if body is None else as_json(body))

    async def _pushed(self, body: object, **shape: Kinds) -> Answered:
        return _good(await self._ask("POST", "push", body=body), success=bool, **shape)

    async def _with_lock(self, verb: str, body: object) -> Answered:
        said = await self._ask("POST", verb, body=body)
        if said.status in _LOCK_REFUSALS:
            return _shaped(said, success=bool, message=str)
        return _good(said, **_LOCK_ANSWERS[verb])

    async def _opened(self) -> Door:
        async with self._opening:
            if self._closed:
                raise Draining("it is closed")
            if self._door is None:
                self._door = await open_door(self._url, *self._how)
            return self._door

    async def close(self) -> None:
        """Locks stay as they are: they run out, or are acknowledged by whoever knows their id."""
        async with self._opening:
            self._closed = True
            door, self._door = self._door, None
            if door is not None:
                await door.close()

    async def __aenter__(self) -> PushPopActor:
        await self._root._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _checked(queue: object) -> str:
    if not isinstance(queue, str) or not is_queue_id(queue):
        raise BadInput("a queue's id has 1 to 64 letters, digits, - and _")
    return queue


def _given(data: object) -> Mapping[str, Any]:
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


def _good(said: Said, **shape: Kinds) -> Answered:
    """The body of an answer that is no refusal."""
    if said.status == 200:
        return _shaped(said, **shape)
    body = _shaped(said, success=bool, message=str)
    raise _ERRORS.get(said.status, StoreError)(body["message"])


def _shaped(said: Said, **shape: Kinds) -> Answered:
    """A body with these fields; whoever says something else is no PushPop server, but perhaps a proxy before it."""
    try:
        body = _read(said.body)
    except (msgspec.DecodeError, RecursionError):
        body = {}
    if (not body and shape) or not all(isinstance(body.get(name), kinds) for name, kinds in shape.items()):
        raise StoreError(f"the answer {said.status} is not a PushPop server's")
    return body
