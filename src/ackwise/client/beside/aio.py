"""For tasks of one event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

AsyncLock = asyncio.Lock


class AsyncSignal:
    """Set until it is cleared; whoever waits is woken."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout: float | None = None) -> bool:
        """Whether it was set in time."""
        if timeout is None or self._event.is_set():
            return await self._event.wait()
        try:
            return await asyncio.wait_for(self._event.wait(), timeout)
        except TimeoutError:
            return False


class AsyncWorker:
    """Runs beside whoever started it."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._task = asyncio.get_running_loop().create_task(work(), name=name)

    async def join(self, timeout: float) -> None:
        """Wait for its end; a worker does not wait for itself."""
        if self._task is not asyncio.current_task():
            await asyncio.wait([self._task], timeout=timeout)


async def call(function: Callable[..., object], *arguments: object) -> object:
    """Call what a user gave: a function, or a coroutine function."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result
