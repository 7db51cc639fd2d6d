"""Connections of a session: opens its broker, waits for wake-ups, and follows the names of a remote session."""

from __future__ import annotations

import asyncio
import threading

from ackwise.broker import AsyncBroker, Broker
from ackwise.client.http_adapters import open_adapter, open_async_adapter
from ackwise.clock import Clock
from ackwise.connect import open_store
from ackwise.protocols.mew.output_records import Line, Note, Result

__all__ = [
    "AsyncBroker",
    "AsyncLocalBroker",
    "AsyncWakeSignal",
    "Broker",
    "LocalBroker",
    "WakeSignal",
    "open_adapter",
    "open_async_adapter",
]


class AsyncLocalBroker:
    """Opens a store and starts a broker on it."""

    @staticmethod
    async def open(url: str, clock: Clock | None) -> AsyncBroker:
        store = await asyncio.to_thread(open_store, url, clock=clock, graph=True)
        try:
            return await AsyncBroker.start(store)
        except BaseException:
            store.close()
            raise


class LocalBroker:
    """Opens a store and starts a broker on it."""

    @staticmethod
    def open(url: str, clock: Clock | None) -> Broker:
        store = open_store(url, clock=clock, graph=True)
        try:
            return Broker(store)
        except BaseException:
            store.close()
            raise


class AsyncWakeSignal:
    """Signal that commits set when a session may have events to fetch."""

    def __init__(self, broker: AsyncBroker, name: str) -> None:
        self._broker, self._name = broker, name
        self._woken = asyncio.Event()
        broker.listeners.add(name, self._wake)

    def _wake(self) -> None:
        self._broker.loop.call_soon_threadsafe(self._woken.set)

    def clear(self) -> None:
        self._woken.clear()

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        self._broker.listeners.remove(self._name, self._wake)


class WakeSignal:
    """Signal that commits set when a session may have events to fetch."""

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker, self._name = broker, name
        self._woken = threading.Event()
        broker.listeners.add(name, self._woken.set)

    def clear(self) -> None:
        self._woken.clear()

    def wait(self, seconds: float) -> None:
        self._woken.wait(seconds)

    def close(self) -> None:
        self._broker.listeners.remove(self._name, self._woken.set)


class RemoteNames:
    """Names of a session on a server: follows its lines, and undoes the names of a failed transaction."""

    def __init__(self, names: dict[str, str]) -> None:
        """`names` is the dictionary to keep up to date."""
        self._names = names
        self._before: dict[str, str] | None = None
        """The names before BEGIN. None outside a transaction."""

    def follow(self, line: Line) -> None:
        if isinstance(line, Note) and line.kind == "error":
            self._restore()
        if not isinstance(line, Result):
            return
        if line.statement == "BEGIN":
            self._before = dict(self._names)
        elif line.statement == "COMMIT":
            self._before = None
        elif line.statement == "ROLLBACK":
            self._restore()
            self._before = None
        self._names.update(line.done.bindings)
        if line.handle is not None and line.done.handle is not None:
            self._names[line.handle.removeprefix("#")] = line.done.handle

    def _restore(self) -> None:
        if self._before is not None:
            self._names.clear()
            self._names.update(self._before)
