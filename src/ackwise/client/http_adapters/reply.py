"""HTTP adapter protocols, replies and connection errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

HEADERS = {"accept": "application/json", "content-type": "application/json"}
KEPT_FOR = 15.0
"""Seconds that the pool keeps an idle connection: less than any server does, so that the server never closes first."""
CONNECT_WITHIN = 10.0


class Reply(NamedTuple):
    """An HTTP answer. `retry_after` is in seconds. None if not sent."""

    status: int
    body: bytes
    now: int | None = None
    """The server's wall clock, in microseconds."""
    retry_after: float | None = None
    clock: int | None = None
    """The server's anchored clock, in microseconds. An older server does not send it."""


class Unsent(Exception):
    """The request was not sent: the server could not be reached and did nothing."""


class Broken(Exception):
    """The request was sent and no answer came: the server may or may not have processed it."""


class AsyncHTTPAdapter(Protocol):
    """Sends one HTTP request and returns its reply, for asyncio."""

    async def request(self, method: str, path: str, body: bytes, timeout: float) -> Reply:
        """Send a request and return its reply. Raises only `Unsent` or `Broken`."""
        ...

    async def broadcast(self, path: str, body: bytes, timeout: float) -> None:
        """POST to every server and ignore connection errors."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class HTTPAdapter(Protocol):
    """Sends one HTTP request and returns its reply, for threads."""

    def request(self, method: str, path: str, body: bytes, timeout: float) -> Reply:
        """Send a request and return its reply. Raises only `Unsent` or `Broken`."""
        ...

    def broadcast(self, path: str, body: bytes, timeout: float) -> None:
        """POST to every server and ignore connection errors."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def close(self) -> None: ...


def reply(status: int, body: bytes, headers: Mapping[str, str]) -> Reply:
    """Build a `Reply` from an answer's status, body and headers."""
    now, later = headers.get("x-ackwise-now", ""), headers.get("retry-after", "")
    pause = float(later) if later.isdecimal() else None
    return Reply(status, body, _micros(now), pause, _micros(headers.get("x-ackwise-clock", "")))


def _micros(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
