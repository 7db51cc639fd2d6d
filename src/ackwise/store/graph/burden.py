"""Budgets of watches: a watch that costs other callers too much is cancelled, and their statements go on.

A statement that changes the graph looks for the matches of each watch that the change concerns. Each look has a budget
of its own. When a watch exceeds the budget, the turn undoes the statement, and the session sends the statement again.
The second attempt leaves the watch out, and cancels it with a notice. So a statement pays for a savepoint, or for a
look without a result, only when a watch is too large.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ackwise.core.graph.budget import StatementLimits
from ackwise.store.graph.standing import Name, Standing
from ackwise.store.meter import Meter, Overrun
from ackwise.store.session import Session

if TYPE_CHECKING:
    from ackwise.store.graph.writing import Graph

LOOK_SECONDS = 0.08
LOOK_ROWS = 10_000
LOOK_BYTES = 32 << 20
"""What one look for the matches of a watch around one changed entity may use."""
ALL_SECONDS = 0.12
"""What all looks of a statement may use before its slow watches are left out."""
SLOW = 0.01
"""Seconds of an average look of a slow watch. Below this, the statement itself changes many entities."""
LEFT_OUT_FOR = 5.0
"""Seconds for which statements leave a watch out. The first of them cancels it; a pool stays, and is scanned again."""
STRIKE_FOR = 10.0
"""A watch that is too slow once may have met a busy machine. Twice within this time is too slow."""


class Burden(Exception):
    """Watches exceeded their budget within a statement. No rule of the language may catch this."""

    def __init__(self, watches: list[Standing], *, slow: bool) -> None:
        super().__init__([watch.name for watch in watches])
        self.watches, self.slow = watches, slow


class _Noted:
    """Watches that exceeded a budget, until when they are left out, and when they were slow before."""

    def __init__(self) -> None:
        self.out: dict[Name, float] = {}
        self.struck: dict[Name, float] = {}


_noted: WeakKeyDictionary[Session, _Noted] = WeakKeyDictionary()


def left_out(session: Session) -> frozenset[Name]:
    """Watches that a statement does not look at."""
    noted = _noted.get(session)
    if noted is None or not noted.out:
        return frozenset()
    now = time.monotonic()
    noted.out = {name: until for name, until in noted.out.items() if until > now}
    return frozenset(noted.out)


def note(session: Session, burden: Burden) -> None:
    """Leave the watches out of the next statements, unless they were slow for the first time."""
    noted = _noted.setdefault(session, _Noted())
    now = time.monotonic()
    noted.struck = {name: until for name, until in noted.struck.items() if until > now}
    for watch in burden.watches:
        if burden.slow and watch.name not in noted.struck:
            noted.struck[watch.name] = now + STRIKE_FOR
        else:
            noted.struck.pop(watch.name, None)
            noted.out[watch.name] = now + LEFT_OUT_FOR


class Bills:
    """What each watch has cost one statement."""

    def __init__(self) -> None:
        self._total = 0.0
        self._bills: dict[Name, tuple[Standing, float, int]] = {}

    @contextmanager
    def look(self, graph: Graph, watch: Standing, count: int = 1) -> Iterator[None]:
        """Run `count` looks for a watch, on a budget of its own."""
        whole = graph.meter
        if whole is None:
            yield
            return
        # A busy machine must not make a watch look slow.
        clock = time.thread_time if graph.session.works_here else time.monotonic
        graph.meter = Meter(_LIMITS, seconds=LOOK_SECONDS, rows=LOOK_ROWS, name="watch", clock=clock)
        began = clock()
        try:
            yield
        except Overrun as problem:
            raise Burden([watch], slow=problem.limit == "watch") from None
        except Exception as problem:
            if graph.session.stopped(problem):
                raise Burden([watch], slow=True) from None
            raise
        finally:
            graph.meter = whole
        self._add(watch, clock() - began, count)

    def _add(self, watch: Standing, seconds: float, count: int) -> None:
        self._total += seconds
        _, before, looks = self._bills.get(watch.name, (watch, 0.0, 0))
        self._bills[watch.name] = watch, before + seconds, looks + count
        if self._total > ALL_SECONDS:
            slow = [one for one, used, looks in self._bills.values() if used >= SLOW * max(1, looks)]
            if slow:
                raise Burden(slow, slow=True)


_LIMITS = StatementLimits(bytes=LOOK_BYTES)
