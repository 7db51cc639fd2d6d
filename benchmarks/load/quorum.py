"""RabbitMQ through aio-pika, where both are installed: a quorum queue, publisher confirms, acks of a whole batch."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from benchmarks.load.peer import PAYLOAD

READ_PATIENCE = 0.25


class Quorum:
    """One connection with one channel."""

    def __init__(self, pika: Any, connection: Any, channel: Any) -> None:
        self._pika, self._connection, self._channel = pika, connection, channel
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._reading = False

    @classmethod
    async def open(cls, address: str) -> Quorum:
        pika = importlib.import_module("aio_pika")
        connection = await pika.connect(address)
        return cls(pika, connection, await connection.channel(publisher_confirms=True))

    async def make(self, queue: str) -> None:
        await self._channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"})

    def prepare(self, queue: str, partition: int, batch: int) -> tuple[str, list[Any]]:
        mode = self._pika.DeliveryMode.PERSISTENT
        return queue, [self._pika.Message(PAYLOAD, delivery_mode=mode) for _ in range(batch)]

    async def push(self, prepared: tuple[str, list[Any]]) -> None:
        queue, messages = prepared
        exchange = self._channel.default_exchange
        await asyncio.gather(*[exchange.publish(message, queue) for message in messages])

    async def pop_and_ack(self, queue: str, most: int) -> int:
        if not self._reading:
            self._reading = True
            await self._channel.set_qos(prefetch_count=most)
            await (await self._channel.get_queue(queue)).consume(self._arrived.put)
        found = await self._some(most)
        if found:
            await found[-1].ack(multiple=True)
        return len(found)

    async def _some(self, most: int) -> list[Any]:
        found: list[Any] = []
        try:
            while len(found) < most:
                found.append(await asyncio.wait_for(self._arrived.get(), READ_PATIENCE))
        except TimeoutError:
            pass
        return found

    async def close(self) -> None:
        await self._connection.close()
