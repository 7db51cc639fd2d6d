"""A bare connection with one request under way at a time: what HTTP and RESP have in common."""

from __future__ import annotations

import asyncio
from typing import Any


class Line(asyncio.Protocol):
    """Writes a request and gathers what comes back; a subclass knows when the answer is complete."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Any] | None = None
        self._got = b""

    def _ask(self, request: bytes) -> asyncio.Future[Any]:
        assert self._transport is not None
        self._answer = self._loop.create_future()
        self._transport.write(request)
        return self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server closed the connection"))
