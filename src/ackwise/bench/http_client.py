"""Minimal HTTP/1.1 client, fast enough to measure a server."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import urlsplit

from ackwise.core.errors import BadInput


class Line(asyncio.Protocol):
    """Connection that writes a request and collects the answer. A subclass detects the end of the answer."""

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


_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Http(Line):
    """HTTP connection with one request at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._need = 0

    @classmethod
    async def open(cls, url: str) -> Http:
        try:
            parts = urlsplit(url)
            known = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if not known:
            raise BadInput(f"{url!r}: the benchmark needs plain http, as in http://127.0.0.1:6632")
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(cls, parts.hostname or "", parts.port or 80))[1]

    def ask(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Send a request. The future holds status and body."""
        return self._ask(request)

    def data_received(self, data: bytes) -> None:
        self._got = self._got + data if self._got else data
        if not self._need:
            end = self._got.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(self._got, 0, end)
            self._need = end + 4 + (int(length[1]) if length else 0)
        if len(self._got) >= self._need:
            self._finish()

    def _finish(self) -> None:
        status = int(self._got[9:12])
        body = self._got[self._got.index(b"\r\n\r\n") + 4 :]
        self._got, self._need = b"", 0
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((status, body))


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
