"""Queen's API, as its official clients use it: a transaction id with every message, the lease with every ack."""

from __future__ import annotations

import re

import msgspec

from ackwise.bench.http_client import Http, get, post
from benchmarks.load.peer import PAYLOAD, transaction_ids

_QUEUED = re.compile(rb'"status": ?"queued"')
_SUCCESS = re.compile(rb'"success": ?true')


class Got(msgspec.Struct):
    """Fields of a popped message that an ack needs."""

    transactionId: str
    partitionId: str


class Popped(msgspec.Struct):
    messages: list[Got] = []
    leaseId: str | None = None


class Ack(msgspec.Struct, omit_defaults=True):
    transactionId: str
    partitionId: str
    status: str
    leaseId: str | None = None


class Acks(msgspec.Struct):
    acknowledgments: list[Ack]


_popped = msgspec.json.Decoder(Popped)
_encode = msgspec.json.Encoder().encode


class Queen:
    """One connection to a Queen server or to Ackwise."""

    def __init__(self, http: Http) -> None:
        self._http = http

    @classmethod
    async def open(cls, address: str) -> Queen:
        return cls(await Http.open(address))

    async def make(self, queue: str) -> None:
        pass

    def prepare(self, queue: str, partition: int, batch: int) -> tuple[bytes, int]:
        head = b'{"queue":"%b","partition":"p%d","payload":%b,"transactionId":"' % (queue.encode(), partition, PAYLOAD)
        items = b",".join([head + name.encode() + b'"}' for name in transaction_ids(batch)])
        return post("/api/v1/push", b'{"items":[' + items + b"]}"), batch

    async def push(self, prepared: tuple[bytes, int]) -> None:
        request, count = prepared
        status, body = await self._http.ask(request)
        if status not in (200, 201) or len(_QUEUED.findall(body)) != count:
            raise RuntimeError(f"push answered {status} {body[:200]!r}")

    async def pop(self, queue: str, most: int, more: str = "") -> Popped:
        status, body = await self._http.ask(get(f"/api/v1/pop/queue/{queue}?batch={most}{more}"))
        if status not in (200, 204):
            raise RuntimeError(f"pop answered {status} {body[:200]!r}")
        return _popped.decode(body) if body else Popped()

    async def pop_and_ack(self, queue: str, most: int) -> int:
        popped = await self.pop(queue, most)
        if popped.messages:
            count = len(popped.messages)
            await self.ack(ack_one(popped) if most == 1 else ack_many(popped), count)
        return len(popped.messages)

    async def ack(self, request: bytes, count: int) -> None:
        status, body = await self._http.ask(request)
        if status != 200 or len(_SUCCESS.findall(body)) != count:
            raise RuntimeError(f"ack answered {status} {body[:200]!r}")

    async def close(self) -> None:
        self._http.close()


def ack_one(popped: Popped, leased: bool = True) -> bytes:
    """The ack of the first message."""
    return post("/api/v1/ack", _encode(_acks(popped, leased)[0]))


def ack_many(popped: Popped, leased: bool = True) -> bytes:
    return post("/api/v1/ack/batch", _encode(Acks(_acks(popped, leased))))


def _acks(popped: Popped, leased: bool) -> list[Ack]:
    lease = popped.leaseId if leased else None
    return [Ack(one.transactionId, one.partitionId, "completed", lease) for one in popped.messages]
