"""Stores that count, and stores that break on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._holds_lock, self.busy = self.busy, self.is_busy
        self._run_turn, self.prepare = self.prepare, self.prepare_turn

    def is_busy(self) -> bool:
        """With `trouble` an event loop prepares turns in a thread, because `trouble` may wait."""
        return self.trouble is not None or self._holds_lock()

    def prepare_turn(self, commands: Sequence[Command], shard: int = 0) -> PreparedTurn:
        self.turns += 1
        if self.trouble is not None:
            self.trouble(commands)
        return self._run_turn(commands, shard)


def push(*payloads: bytes, queue: str = "q", delay: int = 0) -> Push:
    return Push(queue=queue, messages=[NewMessage(payload, delay=delay) for payload in payloads])


def ack(handed: Handed) -> Settle:
    return Settle(entries=[Settlement(selector=ByLease(handed.claimed.lease_id), outcome=Outcome.ACK)])


def payloads(handed: Handed) -> list[bytes]:
    return [message.payload for message in handed.messages]


def claim(most: int = 1, queue: str = "q") -> Claim:
    return Claim(queue=queue, most=most)
