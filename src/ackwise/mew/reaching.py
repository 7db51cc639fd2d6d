"""What a session stands on, a broker or a server, and how it waits: for event loops and for threads."""

from __future__ import annotations

import asyncio
import threading

from ackwise.broker import AsyncBroker, Broker
from ackwise.client.wires.aio import AioWire as AsyncWire
from ackwise.client.wires.threads import ThreadWire as Wire
from ackwise.connect import open_store
from ackwise.store.clock import Clock

__all__ = ["AsyncBell", "AsyncBroker", "AsyncReach", "AsyncWire", "Bell", "Broker", "Reach", "Wire"]


class AsyncReach:
    @staticmethod
    async def broker(url: str, clock: Clock | None) -> AsyncBroker:
        store = await asyncio.to_thread(open_store, url, clock=clock)
        try:
            return await AsyncBroker.start(store)
        except BaseException:
            store.close()
            raise


class Reach:
    @staticmethod
    def broker(url: str, clock: Clock | None) -> Broker:
        store = open_store(url, clock=clock)
        try:
            return Broker(store)
        except BaseException:
            store.close()
            raise


class AsyncBell:
    """Rung by commits that may have brought an event."""

    def __init__(self, broker: AsyncBroker, name: str) -> None:
        self._broker, self._name = broker, name
        self._rung = asyncio.Event()
        broker.bells.listen(name, self._ring)

    def _ring(self) -> None:
        self._broker.loop.call_soon_threadsafe(self._rung.set)

    def clear(self) -> None:
        self._rung.clear()

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        self._broker.bells.leave(self._name, self._ring)


class Bell:
    def __init__(self, broker: Broker, name: str) -> None:
        self._broker, self._name = broker, name
        self._rung = threading.Event()
        broker.bells.listen(name, self._rung.set)

    def clear(self) -> None:
        self._rung.clear()

    def wait(self, seconds: float) -> None:
        self._rung.wait(seconds)

    def close(self) -> None:
        self._broker.bells.leave(self._name, self._rung.set)
