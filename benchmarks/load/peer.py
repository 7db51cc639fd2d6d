"""What every peer's client can do, so that the same code loads all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Protocol

PAYLOAD = b'{"order":4711,"text":"' + b"x" * 166 + b'"}'
assert len(PAYLOAD) == 190


class Client(Protocol):
    """One connection. Whatever is not carried out as asked is raised."""

    async def make(self, queue: str) -> None:
        """Make the queue where a push does not do so itself."""

    def prepare(self, queue: str, partition: int, batch: int) -> Any:
        """A push, encoded beforehand as far as the peer's client allows."""

    async def push(self, prepared: Any) -> None:
        """Send it; returns when it is durable."""

    async def pop_and_ack(self, queue: str, most: int) -> int:
        """Take up to so many, acknowledge them, and say how many they were."""

    async def close(self) -> None: ...


def transaction_ids(count: int) -> Iterator[str]:
    """UUIDs as Queen's clients send them, only cheaper."""
    digits = os.urandom(16 * count).hex()
    for at in range(0, len(digits), 32):
        one = digits[at : at + 32]
        yield f"{one[:8]}-{one[8:12]}-4{one[13:16]}-a{one[17:20]}-{one[20:]}"
