"""Queen's HTTP API as a user of curl sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx2

from ackwise.clock import ManualClock
from tests.protocols.queen.documented import check_documented

Message = dict[str, Any]


class Reply(NamedTuple):
    status: int
    body: Any


class QueenApi:
    """Short words for the calls that tests make often; bodies are written as in the seed document."""

    def __init__(self, http: httpx2.Client, clock: ManualClock, mode: str) -> None:
        self.http, self.clock, self.mode = http, clock, mode

    @property
    def seed(self) -> bool:
        return self.mode == "seed"

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> Reply:
        sent = {} if body is None else {"json": body}
        answer = self.http.request(method, path, params=query or None, **sent)
        reply = Reply(answer.status_code, answer.json() if answer.content else None)
        check_documented(method, path, *reply)
        return reply

    def get(self, path: str, **query: Any) -> Any:
        status, body = self.call("GET", path, **query)
        assert status == 200, body
        return body

    def configure(self, queue: str, **options: Any) -> Any:
        status, body = self.call("POST", "/api/v1/configure", {"queue": queue, "options": options})
        assert status == 200, body
        return body

    def push(self, queue: str, *payloads: Any, partition: str = "Default", **more: Any) -> list[Message]:
        items = [{"queue": queue, "partition": partition, "payload": payload, **more} for payload in payloads]
        status, body = self.call("POST", "/api/v1/push", {"items": items})
        assert status == 201, body
        results: list[Message] = body
        return results

    def pop(self, queue: str, group: str | None = None, **query: Any) -> list[Message]:
        if group is not None:
            query["consumerGroup"] = group
        status, body = self.call("GET", f"/api/v1/pop/queue/{queue}", **query)
        if status == 204:
            return []
        assert status == 200, body
        messages: list[Message] = body["messages"]
        return messages

    def ack(self, message: Message, status: str = "completed", **more: Any) -> Message:
        """As in the seed: transactionId, partitionId, leaseId, status."""
        code, body = self.call("POST", "/api/v1/ack", {**named(message), "status": status, **more}, shape="object")
        assert code == 200, body
        answer: Message = body
        return answer

    def nack(self, message: Message, error: str = "it failed", **more: Any) -> Message:
        return self.ack(message, "failed", error=error, **more)

    def ack_batch(self, *acknowledgments: Message, **more: Any) -> list[Message]:
        code, body = self.call("POST", "/api/v1/ack/batch", {"acknowledgments": list(acknowledgments), **more})
        assert code == 200, body
        answers: list[Message] = body
        return answers

    def dlq(self, queue: str, **query: Any) -> Any:
        return self.get("/api/v1/dlq", queue=queue, **query)

    def dead(self, queue: str) -> list[Any]:
        """What the dead letters of a queue carry, in no order."""
        return sorted(letter["data"] for letter in self.dlq(queue)["messages"])

    def group(self, group: str, queue: str) -> list[Message]:
        """How far a group is in each partition."""
        partitions: list[Message] = self.get(f"/api/v1/consumer-groups/{group}")[queue]["partitions"]
        return partitions


def named(message: Message, **more: Any) -> Message:
    """The keys by which an acknowledgement names a message."""
    return {key: message[key] for key in ("transactionId", "partitionId", "leaseId")} | more


def unleased(message: Message, **more: Any) -> Message:
    """The same without the optional leaseId."""
    return {key: message[key] for key in ("transactionId", "partitionId")} | more


def bodies(messages: list[Message]) -> list[Any]:
    return [message["data"] for message in messages]


def eventually(look: Callable[[], Any], within: float = 20.0) -> Any:
    """What `look` finds once it finds something: sweeps come a little after they are due."""
    end = time.monotonic() + within
    while not (found := look()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found
