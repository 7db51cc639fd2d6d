"""Redis Streams through its Python client redis-py, which encodes every command at the call."""

from __future__ import annotations

from typing import Any

import redis.asyncio
from redis.exceptions import ResponseError

from benchmarks.load.peer import PAYLOAD


class RedisPy:
    """One connection of the official client."""

    def __init__(self, client: Any) -> None:
        self._client, self._name = client, f"c{id(client)}"

    @classmethod
    async def open(cls, address: str) -> RedisPy:
        client = redis.asyncio.Redis.from_url(address, single_connection_client=True)
        await client.ping()
        return cls(client)

    async def make(self, queue: str) -> None:
        try:
            await self._client.xgroup_create(queue, "g", id="0", mkstream=True)
        except ResponseError as problem:
            if "BUSYGROUP" not in str(problem):
                raise

    def prepare(self, queue: str, partition: int, batch: int) -> tuple[str, int]:
        return queue, batch

    async def push(self, prepared: tuple[str, int]) -> None:
        queue, count = prepared
        if count == 1:
            await self._client.xadd(queue, {"p": PAYLOAD})
            return
        pipe = self._client.pipeline(transaction=False)
        for _ in range(count):
            pipe.xadd(queue, {"p": PAYLOAD})
        await pipe.execute()

    async def pop_and_ack(self, queue: str, most: int) -> int:
        found = await self._client.xreadgroup("g", self._name, {queue: ">"}, count=most)
        if not found:
            return 0
        names = [entry[0] for entry in found[0][1]]
        await self._client.xack(queue, "g", *names)
        return len(names)

    async def close(self) -> None:
        await self._client.aclose()
