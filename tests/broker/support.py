"""Stores that count, and stores that break on purpose."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ackwise.core.answers import Handed
from ackwise.core.commands import ByLease, Claim, Command, Push, Settle, Settlement
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.store.port import Prepared
from ackwise.store.sqlite import SQLiteStore

PATIENCE = 20.0


class CountingStore(SQLiteStore):
    """Counts its turns; `trouble` may raise before one."""

    turns = 0
    trouble: Callable[[Sequence[Command]], None] | None = None

    def prepare(self, commands: Sequence[Command], shard: int = 0) -> Prepared:  # type: ignore[override]
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


class InThread:
    """A call in another thread; `result` waits for it and raises what it raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._result: object = None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as problem:
            self._problem = problem

    def result(self) -> object:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the call did not come back"
        if self._problem is not None:
            raise self._problem
        return self._result
