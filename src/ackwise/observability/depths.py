"""Depths: messages by state, lag and age of every queue, read from the store in bounded steps."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable

import msgspec

from ackwise.core.queries import ListStats
from ackwise.core.rows import GroupStats, Page, QueueSummary, Stats
from ackwise.observability.event_counts import EventCounts
from ackwise.observability.labels import MOST_QUEUES, OTHER
from ackwise.store.port import Store

PAGE_ROWS = 100
READ_SECONDS = 1.0
"""Seconds that one refresh reads. A large catalogue needs several refreshes."""
STATES = ("ready", "leased", "waiting", "scheduled", "dead")


class GroupDepth(msgspec.Struct):
    """Progress of a group in its queue. `oldest_at` is the creation time of its oldest claimable message."""

    group: str
    lag: int = 0
    leases: int = 0
    oldest_at: int | None = None

    def add(self, other: GroupDepth) -> None:
        self.lag += other.lag
        self.leases += other.leases
        self.oldest_at = _earlier(self.oldest_at, other.oldest_at)


class QueueDepth(msgspec.Struct):
    """Messages of a queue by state, for the group that is furthest behind."""

    queue: str
    stored: int = 0
    ready: int = 0
    leased: int = 0
    waiting: int = 0
    scheduled: int = 0
    dead: int = 0
    oldest_at: int | None = None
    groups: list[GroupDepth] = msgspec.field(default_factory=list)

    def add(self, other: QueueDepth) -> None:
        """Add another queue. The groups become one sum."""
        for name in ("stored", *STATES):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.oldest_at = _earlier(self.oldest_at, other.oldest_at)
        self.groups = self.groups or [GroupDepth(OTHER)]
        for group in other.groups:
            self.groups[0].add(group)

    @property
    def depth(self) -> int:
        return self.ready + self.leased + self.waiting + self.scheduled + self.dead


class Depths(msgspec.Struct):
    """Depths of the queues with a label, and of all others together."""

    rows: list[QueueDepth] = []
    queues: int = 0
    """Number of all queues."""
    read_at: int | None = None
    """Instant of the broker's clock. None before the first read."""
    read_seconds: float = 0.0


def depth_of(stats: Stats, *, paused: bool) -> QueueDepth:
    groups = [GroupDepth(group.group, group.lag, group.leases, group.oldest_claimable_at) for group in stats.groups]
    behind = stats.furthest_behind
    oldest = None
    if behind is None:
        # The queue has no group yet: a first claim could take every message.
        oldest = None if paused else stats.oldest_at
    else:
        for group in groups:
            oldest = _earlier(oldest, group.oldest_at)
    ready, leased, waiting = (stats.messages, 0, 0) if behind is None else _split(behind)
    return QueueDepth(stats.queue, stats.messages, ready, leased, waiting, stats.scheduled, stats.dead, oldest, groups)


def _split(group: GroupStats) -> tuple[int, int, int]:
    """Three counts of a group: unread messages, messages under a lease, messages that wait for their next attempt."""
    return group.unread, group.leased, max(0, group.held - group.leased)


def _earlier(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


class DepthReader:
    """Depth reader: reads the counts of all queues in rounds, and chooses the queues that get a label.

    Call `refresh` in a helper thread. Each call reads for about a second. The next call continues where it stopped.
    """

    def __init__(self, store: Store, counts: EventCounts, now: Callable[[], int]) -> None:
        self._store, self._counts, self._now = store, counts, now
        self._begin_round()

    def _begin_round(self) -> None:
        self._after = ""
        self._queues = 0
        self._best: dict[str, QueueDepth] = {}
        self._others = QueueDepth(OTHER)
        """Sum of the queues that cannot get a label in this round."""

    def refresh(self, before: Depths) -> Depths:
        """Read for about a second. Returns the depths of all queues after a whole round.

        During a round the method returns `before`. The first call has no earlier depths: it returns the depths that it
        has read.
        """
        began = time.perf_counter()
        while True:
            page = self._store.ask(ListStats(after=self._after, limit=PAGE_ROWS))
            self._add(page)
            took = time.perf_counter() - began
            after = page.next if isinstance(page, Page) else None
            if after is None:
                depths = self._finish(took)
                self._begin_round()
                return depths
            self._after = after
            if took > READ_SECONDS:
                return self._finish(took) if before.read_at is None else before

    def _add(self, page: list[QueueSummary]) -> None:
        for summary in page:
            depth = depth_of(summary.stats, paused=summary.info.paused)
            self._queues += 1
            self._best[depth.queue] = depth
        if len(self._best) > 2 * MOST_QUEUES:
            with self._counts.lock:
                scores = {queue: self._counts.queues.score(queue) + self._best[queue].depth for queue in self._best}
            for queue in heapq.nsmallest(len(self._best) - 2 * MOST_QUEUES, scores, key=lambda queue: scores[queue]):
                self._others.add(self._best.pop(queue))

    def _finish(self, seconds: float) -> Depths:
        with self._counts.lock:
            queues = self._counts.queues
            lost = queues.choose({queue: depth.depth for queue, depth in self._best.items()}, self._queues)
            self._counts.forget(lost)
            # A queue that is called `other` shares the label of the sum.
            shown = queues.shown - {OTHER}
        rows = [depth for queue, depth in self._best.items() if queue in shown]
        if self._queues > len(rows):
            others = QueueDepth(OTHER)
            others.add(self._others)
            for queue, depth in self._best.items():
                if queue not in shown:
                    others.add(depth)
            rows.append(others)
        return Depths(rows, self._queues, self._now(), seconds)
