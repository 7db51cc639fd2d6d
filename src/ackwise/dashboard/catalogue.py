"""Catalogue snapshot: totals of all queues, the queues that are behind, and current rates.

A helper thread reads the catalogue page by page. All open pages share the result.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core.errors import AckwiseError
from ackwise.core.queen_queries import TotalLedger
from ackwise.core.queries import ListStats, ReadLedger, StoreSize
from ackwise.core.rows import LedgerRow, Page, QueueSummary
from ackwise.observability.depths import QueueDepth, depth_of

PAGE_ROWS = 100
INTERVAL = 2.0
"""Seconds between two reads of a small catalogue."""
SHARE = 20
"""The pause after a read is at least this many times as long as the read, so a read costs at most 5 % of a thread."""
FIRST_PATIENCE = 0.12
"""Seconds that a page waits for the first read. Then the page shows the counts so far."""
MOST_LEDGER = 20_000
"""Rows of the ledger for current rates. With more, queues have no rates."""
MOST_TOP = 10
MINUTE = 60_000_000


class TopQueue(msgspec.Struct, frozen=True):
    """A queue in the list of those that are behind."""

    depth: QueueDepth
    lag: int
    paused: bool


class Catalogue(msgspec.Struct):
    """Sums over all queues. `complete` is false until the first read has seen every queue."""

    queues: int = 0
    paused: int = 0
    ready: int = 0
    leased: int = 0
    waiting: int = 0
    scheduled: int = 0
    dead: int = 0
    lag: int = 0
    oldest_at: int | None = None
    oldest_queue: str = ""
    most_behind: list[TopQueue] = []
    oldest: list[TopQueue] = []
    size: int | None = None
    read_at: int | None = None
    complete: bool = False

    def add(self, page: Iterable[QueueSummary]) -> None:
        for summary in page:
            depth = depth_of(summary.stats, paused=summary.info.paused)
            lag = max((group.lag for group in depth.groups), default=depth.ready)
            self.queues += 1
            self.paused += summary.info.paused
            for state in ("ready", "leased", "waiting", "scheduled", "dead"):
                setattr(self, state, getattr(self, state) + getattr(depth, state))
            self.lag += lag
            top = TopQueue(depth, lag, summary.info.paused)
            if lag:
                self.most_behind.append(top)
            if depth.oldest_at is not None:
                self.oldest.append(top)
                if self.oldest_at is None or depth.oldest_at < self.oldest_at:
                    self.oldest_at, self.oldest_queue = depth.oldest_at, depth.queue
        self.most_behind = heapq.nlargest(MOST_TOP, self.most_behind, key=lambda top: top.lag)
        self.oldest = heapq.nsmallest(MOST_TOP, self.oldest, key=lambda top: top.depth.oldest_at or 0)


class Rates(msgspec.Struct):
    """Messages per second by outcome over the last 60 seconds, of all queues and by queue."""

    totals: dict[str, float] = {}
    queues: dict[str, dict[str, float]] | None = None
    """None if too many queues were active to count each."""


class CatalogueReader:
    """Reads the catalogue when a page asks and the last read is old enough."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        """Calls `on_first` after the first complete read: pages show a part of the catalogue until then."""
        self._on_first = on_first
        self._current = Catalogue()
        self._due = 0.0
        self._task: asyncio.Task[None] | None = None

    async def read(self, broker: AsyncBroker) -> Catalogue:
        """The newest complete catalogue, or a part of it while the first read runs."""
        if self._task is None and time.monotonic() >= self._due:
            self._task = asyncio.get_running_loop().create_task(self._refresh(broker))
            self._task.add_done_callback(self._finished)
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=FIRST_PATIENCE)
        return self._current

    def forget(self) -> None:
        """Make the next call read again, because a form has changed something."""
        self._due = 0.0

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()

    async def _refresh(self, broker: AsyncBroker) -> None:
        began, reading, after = time.monotonic(), Catalogue(), ""
        spent = 0.0
        try:
            while True:
                page_began = time.monotonic()
                page = await broker.ask(ListStats(after=after, limit=PAGE_ROWS))
                reading.add(page)
                spent += time.monotonic() - page_began
                if not self._current.complete:
                    self._current = reading
                following = page.next if isinstance(page, Page) else None
                if following is None:
                    break
                after = following
            with suppress(AckwiseError):
                reading.size = await broker.ask(StoreSize())
            reading.read_at, reading.complete = broker.now(), True
            first = not self._current.read_at
            self._current = reading
            if first:
                self._on_first()
        finally:
            self._due = began + max(INTERVAL, SHARE * spent)


async def read_rates(broker: AsyncBroker) -> Rates:
    """Rates from the ledger: the current minute, and the part of the minute before that 60 seconds need."""
    now, shift = broker.now_and_shift()
    wall = now - shift
    minute = wall - wall % MINUTE
    share = 1.0 - (wall - minute) / MINUTE
    rates = Rates(queues={})
    assert rates.queues is not None
    after: tuple[int, str, str, str] | None = None
    for _ in range(2):
        rows = await broker.ask(ReadLedger(after_at=minute - MINUTE, after=after, limit=MOST_LEDGER // 2))
        _add_rows(rates, rows, minute, share)
        after = rows.next if isinstance(rows, Page) else None
        if after is None:
            return rates
    return await _total_rates(broker, minute, share)


def _add_rows(rates: Rates, rows: Iterable[LedgerRow], minute: int, share: float) -> None:
    assert rates.queues is not None
    for row in rows:
        rate = row.count * (1.0 if row.minute >= minute else share) / 60
        rates.totals[row.outcome] = rates.totals.get(row.outcome, 0.0) + rate
        queue = rates.queues.setdefault(row.queue, {})
        queue[row.outcome] = queue.get(row.outcome, 0.0) + rate


async def _total_rates(broker: AsyncBroker, minute: int, share: float) -> Rates:
    """Rates of all queues together."""
    rates = Rates()
    for row in await broker.ask(TotalLedger(after_at=minute - MINUTE, before_at=minute, minutes=1)):
        rate = row.count * (1.0 if row.bucket >= minute else share) / 60
        rates.totals[row.outcome] = rates.totals.get(row.outcome, 0.0) + rate
    return rates
