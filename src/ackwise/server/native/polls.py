"""Polls that wait, by the name their client gave them: a client that stops wants them back, not cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Polls:
    """Whoever cuts a connection does not know what was handed to it; whoever stops a poll gets an answer."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[None]] = {}

    @contextmanager
    def named(self, name: str) -> Iterator[asyncio.Future[None]]:
        """What is done when the poll is stopped. A client that asks again has given up the earlier one."""
        self.stop([name])
        stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[name] = stopped
        try:
            yield stopped
        finally:
            if self._waiting.get(name) is stopped:
                del self._waiting[name]

    def stop(self, names: Iterable[str]) -> int:
        """How many of them were waiting here."""
        found = [future for name in names if (future := self._waiting.get(name)) is not None and not future.done()]
        for future in found:
            future.set_result(None)
        return len(found)
