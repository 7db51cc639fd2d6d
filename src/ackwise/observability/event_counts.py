"""Event counts: adds up batches of events in plain dictionaries, which a scrape reads."""

from __future__ import annotations

import copy
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from ackwise.core import events as e
from ackwise.engine.turn_events import TurnReport
from ackwise.observability.event_buffer import Batch
from ackwise.observability.labels import OTHER, GroupLabels, QueueLabels

SETTLE_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
TURN_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZE_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000)
REQUEST_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
MINUTE = 60_000_000
MOST_ROUTES = 500
"""Maximum number of routes with their own series. The product has fewer routes."""
KINDS = {
    "/api/v1/push": "push",
    "/v1/push": "push",
    "/v1/messages": "push",
    "/queue/{queue}/push": "push",
    "/api/v1/pop": "pop",
    "/api/v1/pop/queue/{queue}": "pop",
    "/api/v1/pop/queue/{queue}/partition/{partition}": "pop",
    "/v1/claim": "pop",
    "/queue/{queue}/pop": "pop",
    "/api/v1/ack": "ack",
    "/api/v1/ack/batch": "ack",
    "/v1/settle": "ack",
    "/queue/{queue}/acknowledge": "ack",
    "/queue/{queue}/deadletter": "ack",
    "/api/v1/transaction": "transaction",
    "/v1/transaction": "transaction",
}
"""Kind of a request by its route, for the metrics with Queen's names."""


REQUESTS = {kind: f"{kind}_requests" for kind in KINDS.values()}


class Histogram:
    """Counts by upper bound. The last count is for values above the largest bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def copied(self) -> Histogram:
        twin = Histogram(self.bounds)
        twin.counts, twin.total = self.counts.copy(), self.total
        return twin

    def add(self, value: float, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def add_all(self, values: list[float] | list[int]) -> None:
        counts, bounds = self.counts, self.bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self.total += sum(values)


class MinuteCounts:
    """Counts by key of the running minute and of the last whole minute."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._minute = now() // MINUTE
        self._running: dict[tuple[str, str], int] = {}
        self._last: dict[tuple[str, str], int] = {}

    def begin(self, at: int) -> None:
        """The counts that follow are of the minute of this instant."""
        minute = at // MINUTE
        # A batch may have begun just before the minute that a scrape has opened meanwhile.
        if minute not in (self._minute, self._minute - 1):
            self._last = self._running if minute == self._minute + 1 else {}
            self._running, self._minute = {}, minute

    def add(self, queue: str, what: str, count: int) -> None:
        key = (queue, what)
        self._running[key] = self._running.get(key, 0) + count

    def last(self) -> Mapping[tuple[str, str], int]:
        self.begin(self._now())
        return dict(self._last)

    def age(self) -> float:
        """Seconds since the last whole minute ended."""
        return (self._now() % MINUTE) / 1_000_000

    def copied(self) -> MinuteCounts:
        self.begin(self._now())
        twin = copy.copy(self)
        twin._running, twin._last = self._running.copy(), self._last.copy()
        return twin


class EventCounts:
    """Consumer that counts the events of an event buffer. A lock separates batches from scrapes.

    Counters begin at 0 when the process starts. A queue that loses its label also loses its counters. Prometheus
    treats the loss as a restarted counter.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self.lock = threading.Lock()
        self.queues, self.groups = QueueLabels(), GroupLabels()
        self.pushed: dict[str, int] = {}
        self.duplicates: dict[str, int] = {}
        self.claimed: dict[tuple[str, str], int] = {}
        self.settled: dict[tuple[str, str, str], int] = {}
        self.settle_times: dict[str, Histogram] = {}
        self.refused: dict[str, int] = {}
        self.expired: dict[tuple[str, str], int] = {}
        self.expired_messages: dict[tuple[str, str], int] = {}
        self.dead: dict[tuple[str, str], int] = {}
        self.promoted: dict[str, int] = {}
        self.pruned: dict[str, int] = {}
        self.turn_seconds = Histogram(TURN_BOUNDS)
        self.turn_commands, self.turn_messages = Histogram(SIZE_BOUNDS), Histogram(SIZE_BOUNDS)
        self.fallbacks = self.connections_lost = self.migrations = 0
        self.requests: dict[tuple[str, str, int], int] = {}
        self.request_seconds: dict[str, Histogram] = {}
        self.kinds: dict[str, int] = {}
        """Requests by kind: push, pop, ack, transaction."""
        self.totals = {"push": 0, "pop": 0, "dlq": 0, "requests": 0}
        """Messages of all queues, and all requests."""
        self.outcomes: dict[str, int] = {}
        """Settled messages of all queues by outcome."""
        self.minutes = MinuteCounts(now)
        self._counters: dict[type, Callable[[list[Any]], None]] = {
            TurnReport: self._turns,
            e.RequestsRefused: self._refused,
            e.DeadLetterAdded: self._dead,
            e.MessagesPromoted: self._promoted,
            e.MessagesPruned: self._pruned,
            e.TurnFellBack: self._fell_back,
            e.ConnectionLost: self._lost,
            e.StoreMigrated: self._migrated,
            e.RequestServed: self._served,
        }

    def add(self, batch: Batch) -> None:
        """Count a batch. Entries of one kind are added up first, so that each name needs one look-up per batch."""
        by_kind: defaultdict[type, list[Any]] = defaultdict(list)
        for _, entry in batch.entries:
            by_kind[type(entry)].append(entry)
        for report in by_kind.get(TurnReport, ()):
            for event in report.others:
                by_kind[type(event)].append(event)
        with self.lock:
            self.minutes.begin(batch.at)
            # Requests come last: their queues then have the labels that the messages of the batch gave them.
            for kind, count in self._counters.items():
                if kind in by_kind:
                    count(by_kind[kind])

    def copied(self) -> EventCounts:
        """Copy for a scrape. Batches wait while the counts are copied, but not while the scrape is written."""
        with self.lock:
            twin = copy.copy(self)
            for name, value in vars(self).items():
                if isinstance(value, Histogram | MinuteCounts | QueueLabels | GroupLabels):
                    setattr(twin, name, value.copied())
                elif isinstance(value, dict):
                    setattr(twin, name, value.copy())
            twin.settle_times = {outcome: times.copied() for outcome, times in self.settle_times.items()}
            twin.request_seconds = {route: times.copied() for route, times in self.request_seconds.items()}
        return twin

    def forget(self, queues: frozenset[str]) -> None:
        """Drop the counters of queues that lost their label."""
        if not queues:
            return
        self.groups.forget(queues)
        for by_queue in (self.pushed, self.duplicates, self.promoted, self.pruned):
            for queue in queues:
                by_queue.pop(queue, None)
        self.claimed = {key: count for key, count in self.claimed.items() if key[0] not in queues}
        self.settled = {key: count for key, count in self.settled.items() if key[0] not in queues}
        self.expired = {key: count for key, count in self.expired.items() if key[0] not in queues}
        self.expired_messages = {key: count for key, count in self.expired_messages.items() if key[0] not in queues}
        self.dead = {key: count for key, count in self.dead.items() if key[0] not in queues}

    def _turns(self, reports: list[TurnReport]) -> None:
        sums = TurnSums(reports)
        self.turn_seconds.add_all([report.seconds for report in reports])
        self.turn_commands.add_all([report.commands for report in reports])
        self.turn_messages.add_all(sums.messages)
        for (name, group, outcome), count in sums.outcomes.items():
            if outcome == "pushed":
                self._pushed(name, count)
            elif outcome == "duplicate":
                self._duplicates(name, count)
            elif outcome == "lease_expired":
                self._expired(name, group, count, sums.expired_leases.get((name, group), 0))
            else:
                self._settled(name, group, outcome, count)
        for (name, group), count in sums.claimed.items():
            self._claimed(name, group, count)
        for reason, count in sums.refused.items():
            self.refused[reason] = self.refused.get(reason, 0) + count
        for outcome, micros, count in sums.times:
            times = self.settle_times.get(outcome)
            if times is None:
                times = self.settle_times[outcome] = Histogram(SETTLE_BOUNDS)
            times.add(micros / 1_000_000, count)

    def _pushed(self, name: str, count: int) -> None:
        queue = self.queues.of(name, count)
        self.pushed[queue] = self.pushed.get(queue, 0) + count
        self.totals["push"] += count
        self.minutes.add(queue, "push_messages", count)

    def _duplicates(self, name: str, count: int) -> None:
        queue = self.queues.of(name)
        self.duplicates[queue] = self.duplicates.get(queue, 0) + count
        self.pushed.setdefault(queue, 0)

    def _claimed(self, name: str, group: str, count: int) -> None:
        queue = self.queues.of(name, count)
        key = (queue, self.groups.of(queue, group))
        self.claimed[key] = self.claimed.get(key, 0) + count
        self.totals["pop"] += count
        self.minutes.add(queue, "pop_messages", count)

    def _settled(self, name: str, group: str, outcome: str, count: int) -> None:
        queue = self.queues.of(name, count)
        key = (queue, self.groups.of(queue, group), outcome)
        self.settled[key] = self.settled.get(key, 0) + count
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        self.minutes.add(queue, "ack", count)

    def _expired(self, name: str, group: str, count: int, leases: int) -> None:
        queue = self.queues.of(name, count)
        key = (queue, self.groups.of(queue, group))
        self.expired[key] = self.expired.get(key, 0) + leases
        self.expired_messages[key] = self.expired_messages.get(key, 0) + count

    def _refused(self, events: list[e.RequestsRefused]) -> None:
        for event in events:
            self.refused[event.reason] = self.refused.get(event.reason, 0) + event.count

    def _dead(self, events: list[e.DeadLetterAdded]) -> None:
        for event in events:
            key = (self.queues.of(event.queue), event.reason)
            self.dead[key] = self.dead.get(key, 0) + 1
            self.totals["dlq"] += 1
            self.minutes.add(key[0], "dlq", 1)

    def _promoted(self, events: list[e.MessagesPromoted]) -> None:
        for event in events:
            queue = self.queues.of(event.queue, event.count)
            self.promoted[queue] = self.promoted.get(queue, 0) + event.count

    def _pruned(self, events: list[e.MessagesPruned]) -> None:
        for event in events:
            queue = self.queues.of(event.queue, event.count)
            self.pruned[queue] = self.pruned.get(queue, 0) + event.count

    def _fell_back(self, events: list[e.TurnFellBack]) -> None:
        self.fallbacks += len(events)

    def _lost(self, events: list[e.ConnectionLost]) -> None:
        self.connections_lost += len(events)

    def _migrated(self, events: list[e.StoreMigrated]) -> None:
        self.migrations += len(events)

    def _served(self, events: list[e.RequestServed]) -> None:
        alike: defaultdict[tuple[str, str, int, str, bool], list[float]] = defaultdict(list)
        for event in events:
            alike[event.method, event.route, event.status, event.queue, event.messages == 0].append(event.seconds)
        self.totals["requests"] += len(events)
        for (method, pattern, status, queue, empty), seconds in alike.items():
            route = self._route(pattern)
            key = (method if method in METHODS else OTHER, route, status)
            self.requests[key] = self.requests.get(key, 0) + len(seconds)
            self.request_seconds[route].add_all(seconds)
            kind = KINDS.get(pattern)
            # A GET of `/v1/messages` lists messages. A GET of the other routes is a pop.
            if kind is not None and not (kind == "push" and method == "GET"):
                self._served_queen(kind, queue, len(seconds), empty=empty and status < 400)

    def _route(self, pattern: str) -> str:
        """The label of a route, which has a histogram."""
        if pattern in self.request_seconds:
            return pattern
        route = OTHER if len(self.request_seconds) >= MOST_ROUTES else pattern
        self.request_seconds.setdefault(route, Histogram(REQUEST_BOUNDS))
        return route

    def _served_queen(self, kind: str, name: str, count: int, *, empty: bool) -> None:
        """Count requests for the metrics with Queen's names."""
        self.kinds[kind] = self.kinds.get(kind, 0) + count
        queue = self.queues.known(name)
        self.minutes.add(queue, REQUESTS[kind], count)
        if kind == "pop" and empty:
            self.minutes.add(queue, "pop_empty", count)


class TurnSums:
    """The reports of a batch, added up by the names in them."""

    def __init__(self, reports: list[TurnReport]) -> None:
        self.outcomes: dict[tuple[str, str, str], int] = {}
        """Messages by queue, group and outcome, as the ledger counts them."""
        self.times: list[tuple[str, int, int]] = []
        """Outcome, microseconds from claim to settlement, and number of messages."""
        self.claimed: dict[tuple[str, str], int] = {}
        self.expired_leases: dict[tuple[str, str], int] = {}
        self.refused: dict[str, int] = {}
        self.messages: list[int] = []
        """Messages of each turn."""
        for report in reports:
            self.messages.append(self._add(report))

    def _add(self, report: TurnReport) -> int:
        messages = 0
        outcomes = self.outcomes
        for (queue, group, outcome, _), (count, times) in report.tally.items():
            key = (queue, group, outcome)
            outcomes[key] = outcomes.get(key, 0) + count
            if outcome != "duplicate":
                messages += count
            for micros, alike in times.items():
                self.times.append((outcome, micros, alike))
        for pair, count in report.claimed.items():
            self.claimed[pair] = self.claimed.get(pair, 0) + count
            messages += count
        for pair, count in report.expired_leases.items():
            self.expired_leases[pair] = self.expired_leases.get(pair, 0) + count
        for reason, count in report.refused.items():
            self.refused[reason] = self.refused.get(reason, 0) + count
        return messages
