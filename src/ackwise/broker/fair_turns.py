"""Turns for long work: a few callers work at once, and waiting callers alternate.

One caller with many statements delays another caller by the statements that run, not by those that wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ackwise.core.errors import Draining, Overloaded

LONGEST_WAIT = 30.0
"""Seconds that work waits for its turn."""


class FairTurns:
    """At most `at_once` turns at the same time. Only for one event loop.

    A free turn goes to the waiting caller with the fewest turns. Callers with equally many turns alternate.
    """

    def __init__(self, at_once: int, what: str) -> None:
        """`what` names the work in errors, as in "long statements"."""
        self._free, self._what = at_once, what
        self._working: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Callers in the order of their next turns."""
        self._closed = False

    def __len__(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Hold a turn while the block runs. Raises `Overloaded` after `LONGEST_WAIT` seconds without a turn."""
        if self._closed:
            raise Draining("the broker is closed")
        if self._free and not self._waiting:
            self._take(caller)
        else:
            await self._wait(caller)
        try:
            yield
        finally:
            self._give_back(caller)

    def _take(self, caller: str) -> None:
        self._free -= 1
        self._working[caller] += 1

    def _give_back(self, caller: str) -> None:
        self._free += 1
        self._working[caller] -= 1
        if not self._working[caller]:
            del self._working[caller]
        if caller in self._waiting:
            self._waiting[caller] = self._waiting.pop(caller)
        self._wake()

    async def _wait(self, caller: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        patience = LONGEST_WAIT
        try:
            async with asyncio.timeout(patience):
                await turn
        except TimeoutError:
            self._leave(caller, turn)
            raise Overloaded(
                f"the statement waited {patience:g} seconds behind other {self._what}; try again in a moment"
            ) from None
        except asyncio.CancelledError:
            self._leave(caller, turn)
            raise

    def _leave(self, caller: str, turn: asyncio.Future[None]) -> None:
        """End a wait. A turn that was given at the same moment goes to the next caller."""
        if turn.cancelled():
            queue = self._waiting.get(caller, deque())
            if turn in queue:
                queue.remove(turn)
            if not queue:
                self._waiting.pop(caller, None)
        elif turn.exception() is None:
            self._give_back(caller)

    def _wake(self) -> None:
        while self._free and self._waiting:
            caller = min(self._waiting, key=self._working.__getitem__)
            queue = self._waiting.pop(caller)
            turn = queue.popleft()
            if queue:
                self._waiting[caller] = queue
            if not turn.cancelled():
                turn.set_result(None)
                self._take(caller)

    def close(self) -> None:
        """Refuse the callers that wait, and new ones."""
        self._closed = True
        waiting, self._waiting = self._waiting, {}
        for queue in waiting.values():
            for turn in queue:
                if not turn.cancelled():
                    turn.set_exception(Draining("the broker is closed"))
