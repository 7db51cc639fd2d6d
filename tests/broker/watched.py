"""A store that can be held up, and short words for tests of who is woken and who shares a turn."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ackwise.clock import Clock
from ackwise.core import ids
from ackwise.core.answers import Claimed, Handed
from ackwise.core.commands import ByDelivery, Claim, Command, Push, Settle, Settlement
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.store.port import PreparedTurn
from ackwise.store.sqlite import SQLiteStore
from tests.patience import PATIENCE

SECOND = 1_000_000


def push(*bodies: str, queue: str = "q", partition: str = "p", **more: Any) -> Push:
    return Push(queue=queue, messages=[NewMessage(b.encode(), partition, **more) for b in bodies])


def claim(most: int = 1, **more: Any) -> Claim:
    return Claim(**{"queue": "q", "most": most, "lease": 60 * SECOND, **more})


def bodies(handed: Handed) -> list[str]:
    return [m.payload.decode() for m in handed.messages]


def settle(claimed: Claimed, outcome: str = "ack", **more: Any) -> Settle:
    """One entry per delivery of the claim."""
    return Settle(
        entries=[
            Settlement(
                selector=ByDelivery(ids.delivery_id(claimed.lease_no, claimed.tag, grant.lane, seq)),
                outcome=Outcome(outcome),
                **more,
            )
            for grant in claimed.grants
            for seq in range(grant.lo, grant.hi)
        ]
    )


class WatchedStore(SQLiteStore):
    """Remembers how many commands each turn had, and holds turns up at a gate."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        super().__init__(url, clock=clock, seed=1)
        self.turns: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        self._holds_lock, self.busy = self.busy, self.is_busy
        self._run_turn, self.prepare = self.prepare, self.prepare_turn

    def is_busy(self) -> bool:
        """While it holds turns up, an event loop prepares them in a thread."""
        return not self.gate.is_set() or self._holds_lock()

    def prepare_turn(self, commands: Sequence[Command], shard: int = 0) -> PreparedTurn:
        self.waiting.set()
        assert self.gate.wait(PATIENCE)
        self.turns.append(len(commands))
        return self._run_turn(commands, shard)

    def hold(self) -> None:
        """The next turn waits in front of the store until `gate` is set."""
        self.waiting.clear()
        self.gate.clear()


class Errand(threading.Thread):
    """A call in another thread; `result()` is its answer or its exception."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._answer: Any = None
        self._problem: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._answer = self._work()
        except BaseException as problem:
            self._problem = problem

    def result(self) -> Any:
        self.join(PATIENCE)
        assert not self.is_alive(), "it never came back"
        if self._problem is not None:
            raise self._problem
        return self._answer


def interrupt() -> None:
    """Raise `KeyboardInterrupt` in the main thread. The test uses the fixture `interrupts`."""
    os.kill(os.getpid(), signal.SIGINT)


def until(what: Callable[[], bool]) -> None:
    """Look again and again until something is so."""
    ticks = threading.Event()
    for _ in range(round(PATIENCE / 0.002)):
        if what():
            return
        ticks.wait(0.002)
    raise AssertionError("it never became so")
