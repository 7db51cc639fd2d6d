"""What a wire carries, and how it says that it could not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

HEADERS = {"accept": "application/json", "content-type": "application/json"}
KEPT_FOR = 15.0
"""How long an idle connection is kept: less than any server does, so that none is found closed when it is needed."""

CONNECT_WITHIN = 10.0


class Reply(NamedTuple):
    """An answer; `now` is the server's time and `retry_after` in seconds, where it says them."""

    status: int
    body: bytes
    now: int | None = None
    retry_after: float | None = None


class Unsent(Exception):
    """The server was not reached: it knows nothing of the request."""


class Broken(Exception):
    """No answer came: the server may or may not have had the request."""


class AsyncWire(Protocol):
    """One request in, one reply out."""

    async def request(self, method: str, path: str, body: bytes, timeout: float) -> Reply:
        """Raises `Unsent` or `Broken`, nothing else."""
        ...

    async def tell(self, path: str, body: bytes, timeout: float) -> None:
        """To every server there is, whether it hears it or not."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class Wire(Protocol):
    """The same for threads."""

    def request(self, method: str, path: str, body: bytes, timeout: float) -> Reply:
        """Raises `Unsent` or `Broken`, nothing else."""
        ...

    def tell(self, path: str, body: bytes, timeout: float) -> None:
        """To every server there is, whether it hears it or not."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def close(self) -> None: ...


def reply(status: int, body: bytes, headers: Mapping[str, str]) -> Reply:
    now, later = headers.get("x-ackwise-now", ""), headers.get("retry-after", "")
    return Reply(status, body, int(now) if now.isdecimal() else None, float(later) if later.isdecimal() else None)
