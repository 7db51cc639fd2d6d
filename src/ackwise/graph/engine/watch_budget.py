"""Budgets of watches: cancels a watch that slows down the statements of other callers.

A statement that changes the graph searches the matches of each watch that the change concerns. Each search has its own
budget. When a watch exceeds it, the turn undoes the statement, and the session sends the statement again. The second
attempt leaves the watch out and cancels it with a notice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ackwise.engine.ports import Session
from ackwise.engine.statement_limits import StatementLimits
from ackwise.engine.statement_meter import Meter, Overrun
from ackwise.graph.engine.watch_index import StandingId, StandingQuery

if TYPE_CHECKING:
    from ackwise.graph.engine.entities import Graph

LOOK_SECONDS = 0.08
LOOK_ROWS = 10_000
LOOK_BYTES = 32 << 20
"""Budget of one search for the matches of a watch around one changed entity."""
ALL_SECONDS = 0.12
"""Seconds of all searches of a statement. Beyond them the statement leaves its slow watches out."""
SLOW = 0.01
"""A watch is slow if its average search takes longer. Below that, the statement itself changes many entities."""
LEFT_OUT_FOR = 5.0
"""Seconds for which statements leave a watch out. The first statement cancels the watch. A pool is scanned again."""
STRIKE_FOR = 10.0
"""A watch counts as too slow the second time within this many seconds: the first time the machine may be busy."""


class WatchBudgetExceeded(Exception):
    """Watches exceeded their budget within a statement. Not a `GraphError`: no rule of the language may catch it."""

    def __init__(self, watches: list[StandingQuery], *, slow: bool) -> None:
        super().__init__([watch.id for watch in watches])
        self.watches, self.slow = watches, slow


class _Offenders:
    """Watches that exceeded a budget."""

    def __init__(self) -> None:
        self.left_out: dict[StandingId, float] = {}
        """Until when statements leave a watch out."""
        self.warned: dict[StandingId, float] = {}
        """Until when a slow watch is left out if it is slow again."""


_offenders: WeakKeyDictionary[Session, _Offenders] = WeakKeyDictionary()


def left_out(session: Session) -> frozenset[StandingId]:
    """Watches that the next statement leaves out."""
    offenders = _offenders.get(session)
    if offenders is None or not offenders.left_out:
        return frozenset()
    now = time.monotonic()
    offenders.left_out = {watch: until for watch, until in offenders.left_out.items() if until > now}
    return frozenset(offenders.left_out)


def note(session: Session, exceeded: WatchBudgetExceeded) -> None:
    """Leave the watches out of the next statements. A watch that is slow for the first time is only marked."""
    offenders = _offenders.setdefault(session, _Offenders())
    now = time.monotonic()
    offenders.warned = {watch: until for watch, until in offenders.warned.items() if until > now}
    for watch in exceeded.watches:
        if exceeded.slow and watch.id not in offenders.warned:
            offenders.warned[watch.id] = now + STRIKE_FOR
        else:
            offenders.warned.pop(watch.id, None)
            offenders.left_out[watch.id] = now + LEFT_OUT_FOR


class WatchCosts:
    """Seconds that each watch has cost one statement."""

    def __init__(self) -> None:
        self._total = 0.0
        self._costs: dict[StandingId, tuple[StandingQuery, float, int]] = {}

    @contextmanager
    def metered(self, graph: Graph, watch: StandingQuery, count: int = 1) -> Iterator[None]:
        """Meter `count` searches of a watch on a budget of their own. Raises `WatchBudgetExceeded`."""
        statement_meter = graph.meter
        if statement_meter is None:
            yield
            return
        # CPU time, where it is known: a busy machine must not make a watch look slow.
        clock = time.thread_time if graph.session.works_here else time.monotonic
        graph.meter = Meter(_LIMITS, seconds=LOOK_SECONDS, rows=LOOK_ROWS, name="watch", clock=clock)
        began = clock()
        try:
            yield
        except Overrun as problem:
            raise WatchBudgetExceeded([watch], slow=problem.limit == "watch") from None
        except Exception as problem:
            if graph.session.stopped(problem):
                raise WatchBudgetExceeded([watch], slow=True) from None
            raise
        finally:
            graph.meter = statement_meter
        self._add(watch, clock() - began, count)

    def _add(self, watch: StandingQuery, seconds: float, count: int) -> None:
        self._total += seconds
        _, before, searches = self._costs.get(watch.id, (watch, 0.0, 0))
        self._costs[watch.id] = watch, before + seconds, searches + count
        if self._total > ALL_SECONDS:
            slow = [watch for watch, used, searches in self._costs.values() if used >= SLOW * max(1, searches)]
            if slow:
                raise WatchBudgetExceeded(slow, slow=True)


_LIMITS = StatementLimits(bytes=LOOK_BYTES)
