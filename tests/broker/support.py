"""Stores that count, and stores that break on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ackwise.core.answers import Handed
from ackwise.core.commands import ByLease, Claim, Command, Push, Settle, Settlement
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.store.port import PreparedTurn
from ackwise.store.sqlite import SQLiteStore


class CountingStore(SQLiteStore):
    """Counts its turns; `trouble` may raise before one."""

    turns = 0
    trouble: Callable[[Sequence[Command]], None] | None = None

    @property
    def busy(self) -> bool:
        """With `trouble` an event loop prepares turns in a thread, because `trouble` may wait."""
        return self.trouble is not None or super().busy

    def prepare(self, commands: Sequence[Command], shard: int = 0) -> PreparedTurn:
        self.turns += 1
        if self.trouble is not None:
            self.trouble(commands)
        return super().prepare(commands, shard)


def push(*payloads: bytes, queue: str = "q", delay: int = 0) -> Push:
    return Push(queue=queue, messages=[NewMessage(payload, delay=delay) for payload in payloads])


def ack(handed: Handed) -> Settle:
    return Settle(entries=[Settlement(selector=ByLease(handed.claimed.lease_id), outcome=Outcome.ACK)])


def payloads(handed: Handed) -> list[bytes]:
    return [message.payload for message in handed.messages]


def claim(most: int = 1, queue: str = "q") -> Claim:
    return Claim(queue=queue, most=most)
