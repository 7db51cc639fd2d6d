"""PushPop's HTTP API as a user of curl sees it."""

from __future__ import annotations

import json
from itertools import count
from typing import Any, NamedTuple

import httpx2

from ackwise.clock import ManualClock

_numbers = count()
LOCKED = "Queue is locked pending acknowledgement"
EXPIRED = {"success": False, "message": "Lock has expired", "error_code": "LOCK_EXPIRED"}
NOT_FOUND = {"success": False, "message": "No active lock found"}
INVALID = {"success": False, "message": "Invalid lock_id"}
REQUIRED = {"success": False, "message": "lock_id is required"}


class Reply(NamedTuple):
    status: int
    body: Any


class PushPopApi:
    """One queue, and short words for the calls that tests make often."""

    def __init__(self, http: httpx2.Client, clock: ManualClock, queue: str | None = None) -> None:
        self.http, self.clock = http, clock
        self.queue = queue or f"queue-{next(_numbers)}"

    def another(self) -> PushPopApi:
        return PushPopApi(self.http, self.clock)

    @property
    def now(self) -> float:
        return self.clock.now() / 1e6

    def call(self, method: str, verb: str, body: Any = None, *, headers: Any = None, **query: Any) -> Reply:
        """A body that is bytes goes as it is."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        path = f"/queue/{self.queue}/{verb}".rstrip("/")
        answer = self.http.request(method, path, params=query or None, headers=headers, content=sent)
        return Reply(answer.status_code, json.loads(answer.content))

    def post(self, verb: str, body: Any = None, **rest: Any) -> Reply:
        return self.call("POST", verb, body, **rest)

    def push(self, *items: Any, priority: int | None = None) -> None:
        """Numbers stand for items."""
        for item in items:
            body = {"item": named(item)} if priority is None else {"item": named(item), "priority": priority}
            status, answer = self.post("push", body)
            assert (status, answer["success"]) == (200, True), answer

    def pop(self, **query: Any) -> Any:
        """What a plain pop takes."""
        status, body = self.post("pop", **query)
        assert status == 200, body
        assert set(body) == {"items", "count"}
        assert body["count"] == len(body["items"])
        return [one["n"] for one in body["items"]]

    def lock(self, **query: Any) -> Any:
        """A pop under a lock."""
        status, body = self.post("pop", require_ack="true", **query)
        assert status == 200, body
        assert body["locked"] is True
        return body

    def ack(self, lock_id: Any) -> Reply:
        return self.post("acknowledge", {"lock_id": lock_id})

    def look(self) -> Any:
        status, body = self.call("GET", "")
        assert status == 200, body
        return body

    def metadata(self) -> Any:
        status, body = self.call("GET", "metadata")
        assert status == 200, body
        return body

    @property
    def depth(self) -> Any:
        return self.look()["depth"]

    def drained(self) -> list[Any]:
        """Everything that is left, in its order."""
        return [item for page in iter(lambda: self.pop(count=100), []) for item in page]


def named(item: Any) -> Any:
    return {"n": item} if isinstance(item, int) else item


def taken(popped: Any) -> list[Any]:
    return [one["n"] for one in popped["items"]]
