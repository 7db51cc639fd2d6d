"""Documentation of PushPop's routes for `/openapi.json`."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.protocols.pushpop import push
from ackwise.protocols.route_docs import RouteDoc

TAG = "pushpop"
_UNSET = msgspec.UNSET
Text = str | msgspec.UnsetType
Object = dict[str, Any]


class PushPopError(msgspec.Struct):
    """Error of a PushPop route."""

    message: str
    success: bool | msgspec.UnsetType = _UNSET
    error_code: Text = _UNSET
    lock_expires_at: float | msgspec.UnsetType = _UNSET


class Success(msgspec.Struct):
    success: bool
    message: str
    items_pushed: int | msgspec.UnsetType = _UNSET
    items_acknowledged: int | msgspec.UnsetType = _UNSET
    dlq_id: str | msgspec.UnsetType | None = _UNSET
    dlq_ids: list[str] | msgspec.UnsetType = _UNSET
    sink_id: Text = _UNSET


class PoppedItems(msgspec.Struct):
    """Items exactly as they were pushed. A lock is answered with `require_ack`."""

    items: list[Object]
    count: int
    locked: bool | msgspec.UnsetType = _UNSET
    lock_id: Text = _UNSET
    lock_expires_at: float | msgspec.UnsetType = _UNSET


class LockBody(msgspec.Struct):
    lock_id: str


class ExtensionBody(msgspec.Struct):
    lock_id: str
    additional_ttl_seconds: int = 30


class ExtendedLock(msgspec.Struct):
    lock_id: str
    new_expires_at: float


class ShownLock(msgspec.Struct):
    lock_id: str
    expires_at: float
    seconds_left: float


class ShownQueue(msgspec.Struct):
    queue_id: str
    depth: dict[str, int]
    lock: ShownLock | None
    expired_locks: int


class ShownQueues(msgspec.Struct):
    queues: list[ShownQueue]


class PopQuery(msgspec.Struct):
    count: Text = _UNSET
    require_ack: Text = _UNSET
    ttl_seconds: Text = _UNSET
    allow_competing_consumers: Text = _UNSET


class ListQuery(msgspec.Struct):
    after: Text = _UNSET
    limit: Text = _UNSET


def _doc(summary: str, **more: Any) -> RouteDoc:
    return RouteDoc(summary=summary, tag=TAG, error=PushPopError, **more)


_LOCKED: dict[str, Any] = {"errors": (404, 410)}
DOCS = {
    "GET /queue": _doc("List queues", query=ListQuery, answers={200: ShownQueues}),
    "GET /queue/{queue}": _doc("Show a queue", answers={200: ShownQueue}),
    "GET /queue/{queue}/metadata": _doc("Items by priority, and the active lock", answers={200: Object}),
    "POST /queue/{queue}/push": _doc("Push items", body=push._Body, answers={200: Success}, errors=(404, 409)),
    "POST /queue/{queue}/pop": _doc("Pop items", query=PopQuery, answers={200: PoppedItems}, errors=(423,)),
    "POST /queue/{queue}/acknowledge": _doc(
        "Acknowledge a lock's items", body=LockBody, answers={200: Success}, **_LOCKED
    ),
    "POST /queue/{queue}/extend-lock": _doc(
        "Extend a lock", body=ExtensionBody, answers={200: ExtendedLock}, **_LOCKED
    ),
    "POST /queue/{queue}/deadletter": _doc(
        "Dead-letter a lock's items", body=LockBody, answers={200: Success}, **_LOCKED
    ),
}
UNREGISTER = _doc("Remove a queue's sink", answers={200: Success})


def register(body: Any) -> RouteDoc:
    """Documentation of the route that registers a sink with the type `body`. Sinks are an extra."""
    return _doc("Post a queue's items to a URL", body=body, answers={200: Success})
