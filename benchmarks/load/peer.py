"""Interface of a peer's client, so that the same code loads all peers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Protocol

PAYLOAD = b'{"order":4711,"text":"' + b"x" * 166 + b'"}'
assert len(PAYLOAD) == 190


class Client(Protocol):
    """One connection. A failed request raises."""

    async def make(self, queue: str) -> None:
        """Create the queue, for peers whose push does not create it."""

    def prepare(self, queue: str, partition: int, batch: int) -> Any:
        """Encode a push, as far as the peer's client allows."""

    async def push(self, prepared: Any) -> None:
        """Send a push and wait until it is durable."""

    async def pop_and_ack(self, queue: str, most: int) -> int:
        """Pop messages and ack them. Returns their number."""

    async def close(self) -> None: ...


def transaction_ids(count: int) -> Iterator[str]:
    """UUIDs in the form that Queen's clients send, but cheaper to make."""
    digits = os.urandom(16 * count).hex()
    for at in range(0, len(digits), 32):
        one = digits[at : at + 32]
        yield f"{one[:8]}-{one[8:12]}-4{one[13:16]}-a{one[17:20]}-{one[20:]}"
