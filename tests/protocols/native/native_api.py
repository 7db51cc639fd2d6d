"""The native API as a user of curl sees it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import httpx2
import pyarrow as pa

from ackwise.clock import ManualClock

ARROW = "application/vnd.apache.arrow.stream"
Message = dict[str, Any]


class Reply(NamedTuple):
    status: int
    body: Any


class NativeApi:
    """Short words for the calls that tests make often."""

    def __init__(self, http: httpx2.Client, clock: ManualClock) -> None:
        self.http, self.clock = http, clock

    def raw(self, path: str, body: bytes, **headers: str) -> httpx2.Response:
        return self.http.post(path, content=body, headers=headers)

    def call(self, path: str, body: Any) -> Reply:
        answer = self.raw(path, json.dumps(body, ensure_ascii=False).encode())
        return Reply(answer.status_code, answer.json())

    def ok(self, path: str, body: Any) -> Any:
        status, answer = self.call(path, body)
        assert status == 200, answer
        return answer

    def push(self, queue: str, *payloads: Any, **more: Any) -> list[Message]:
        rows = [{"payload": payload, **more} for payload in payloads]
        receipts: list[Message] = self.ok("/v1/push", {"queue": queue, "messages": rows})["receipts"]
        return receipts

    def claim(self, queue: str, **more: Any) -> Message:
        claim: Message = self.ok("/v1/claim", {"queue": queue, **more})
        return claim

    def settle(self, *entries: Message, **more: Any) -> list[Message]:
        verdicts: list[Message] = self.ok("/v1/settle", {"entries": list(entries), **more})["verdicts"]
        return verdicts

    def admin(self, kind: str, **fields: Any) -> Any:
        return self.ok("/v1/admin", {"type": kind, **fields})

    def ask(self, kind: str, **fields: Any) -> Any:
        return self.ok("/v1/ask", {"type": kind, **fields})

    def table(self, name: str, **query: Any) -> Any:
        answer = self.http.get(f"/v1/tables/{name}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def rows(self, name: str, **query: Any) -> list[Message]:
        found: list[Message] = self.table(name, **query)["rows"]
        return found

    def arrow_table(self, name: str, **query: Any) -> Any:
        answer = self.http.get(f"/v1/tables/{name}", params=query, headers={"accept": ARROW})
        return read_arrow(answer)

    def group(self, queue: str, group: str = "__QUEUE_MODE__") -> Message:
        (found,) = self.rows("groups", queue=queue, group=group)
        return found


def read_arrow(answer: httpx2.Response) -> Any:
    assert (answer.status_code, answer.headers["content-type"]) == (200, ARROW), answer.text
    with pa.ipc.open_stream(answer.content) as reader:
        return reader.read_all()


def write_arrow(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written
