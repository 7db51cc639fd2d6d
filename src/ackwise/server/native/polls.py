"""Polls that wait, by the name their client gave them: a client that stops wants them back, not cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


class Polls:
    """Whoever cuts a connection does not know what was handed to it; whoever stops a poll gets an answer."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[None]] = {}

    async def until_stopped(
        self, name: str, work: Awaitable[T], give_back: Callable[[T], Awaitable[object]]
    ) -> T | None:
        """The work's result; None when the poll was stopped first. What nobody is there to have is given back."""
        task = asyncio.ensure_future(work)
        stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[name] = stopped
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and task.exception() is None:
                await asyncio.shield(asyncio.ensure_future(give_back(task.result())))
            raise
        finally:
            task.cancel()
            if self._waiting.get(name) is stopped:
                del self._waiting[name]

    def stop(self, names: Iterable[str]) -> int:
        """How many of them were waiting here."""
        found = [future for name in names if (future := self._waiting.get(name)) is not None and not future.done()]
        for future in found:
            future.set_result(None)
        return len(found)
