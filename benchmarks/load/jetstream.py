"""NATS JetStream through nats-py: a stream in files, published asynchronously, read by one durable pull consumer."""

from __future__ import annotations

import asyncio
from typing import Any

import nats
from nats.aio.client import Client as Connection
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

from benchmarks.load.peer import PAYLOAD

READ_PATIENCE = 0.5
ACK_PATIENCE = 30.0


class JetStream:
    """One connection to a NATS server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stream = connection.jetstream()
        self._reader: Any = None

    @classmethod
    async def open(cls, address: str) -> JetStream:
        return cls(await nats.connect(address))

    async def make(self, queue: str) -> None:
        await self._stream.add_stream(StreamConfig(name=queue, subjects=[queue], storage=StorageType.FILE))
        reader = ConsumerConfig(durable_name="g", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=100_000, ack_wait=300)
        await self._stream.add_consumer(queue, reader)

    def prepare(self, queue: str, partition: int, batch: int) -> tuple[str, int]:
        return queue, batch

    async def push(self, prepared: tuple[str, int]) -> None:
        subject, count = prepared
        await asyncio.gather(*[await self._stream.publish_async(subject, PAYLOAD) for _ in range(count)])

    async def pop_and_ack(self, queue: str, most: int) -> int:
        """Waits only for the answer to the last ack. The server handles acks in order, so that is one round trip."""
        if self._reader is None:
            self._reader = await self._stream.pull_subscribe_bind("g", stream=queue)
        try:
            found = await self._reader.fetch(most, timeout=READ_PATIENCE)
        except TimeoutError:
            return 0
        for one in found[:-1]:
            await one.ack()
        await found[-1].ack_sync(ACK_PATIENCE)
        return len(found)

    async def close(self) -> None:
        await self._connection.close()
