"""Event counts: adds up the events of a store in plain dictionaries, which a scrape reads."""

from __future__ import annotations

import copy
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping

from ackwise.core import events as e
from ackwise.core.events import EventStream
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


class MinuteCounts:
    """Counts by key of the running minute and of the last whole minute."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._minute = now() // MINUTE
        self._running: dict[tuple[str, str], int] = {}
        self._last: dict[tuple[str, str], int] = {}

    def add(self, queue: str, what: str, count: int) -> None:
        self._turn_over()
        key = (queue, what)
        self._running[key] = self._running.get(key, 0) + count

    def last(self) -> Mapping[tuple[str, str], int]:
        self._turn_over()
        return dict(self._last)

    def age(self) -> float:
        """Seconds since the last whole minute ended."""
        return (self._now() % MINUTE) / 1_000_000

    def copied(self) -> MinuteCounts:
        self._turn_over()
        twin = copy.copy(self)
        twin._running, twin._last = self._running.copy(), self._last.copy()
        return twin

    def _turn_over(self) -> None:
        minute = self._now() // MINUTE
        if minute != self._minute:
            self._last = self._running if minute == self._minute + 1 else {}
            self._running, self._minute = {}, minute


class EventCounts:
    """Listener that counts the events of a store. A lock separates events from each other and from scrapes.

    Counters begin at 0 when the process starts. A queue that loses its label also loses its counters. Prometheus
    treats the loss as a restarted counter.
    """

    def __init__(self, stream: EventStream, now: Callable[[], int]) -> None:
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
        self._counters: dict[type[e.Event], Callable[..., None]] = {
            e.MessagesPushed: self._pushed,
            e.MessagesClaimed: self._claimed,
            e.MessagesSettled: self._settled,
            e.RequestsRefused: self._refused,
            e.LeasesExpired: self._expired,
            e.DeadLetterAdded: self._dead,
            e.MessagesPromoted: self._promoted,
            e.MessagesPruned: self._pruned,
            e.TurnCommitted: self._turn,
            e.TurnFellBack: self._fell_back,
            e.ConnectionLost: self._lost,
            e.StoreMigrated: self._migrated,
            e.RequestServed: self._served,
        }
        self.stop = stream.subscribe(self._hear, *self._counters)

    def _hear(self, event: e.Event) -> None:
        with self.lock:
            self._counters[type(event)](event)

    def copied(self) -> EventCounts:
        """Copy for a scrape. Events wait while the counts are copied, but not while the scrape is written."""
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

    def _pushed(self, event: e.MessagesPushed) -> None:
        queue = self.queues.of(event.queue, event.count)
        self.pushed[queue] = self.pushed.get(queue, 0) + event.count
        if event.duplicates:
            self.duplicates[queue] = self.duplicates.get(queue, 0) + event.duplicates
        self.totals["push"] += event.count
        self.minutes.add(queue, "push_messages", event.count)

    def _claimed(self, event: e.MessagesClaimed) -> None:
        queue = self.queues.of(event.queue, event.count)
        key = (queue, self.groups.of(queue, event.group))
        self.claimed[key] = self.claimed.get(key, 0) + event.count
        self.totals["pop"] += event.count
        self.minutes.add(queue, "pop_messages", event.count)

    def _settled(self, event: e.MessagesSettled) -> None:
        queue = self.queues.of(event.queue, event.count)
        outcome = event.outcome
        key = (queue, self.groups.of(queue, event.group), outcome)
        self.settled[key] = self.settled.get(key, 0) + event.count
        times = self.settle_times.get(outcome)
        if times is None:
            times = self.settle_times[outcome] = Histogram(SETTLE_BOUNDS)
        for micros, count in event.times.items():
            times.add(micros / 1_000_000, count)
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + event.count
        self.minutes.add(queue, "ack", event.count)

    def _refused(self, event: e.RequestsRefused) -> None:
        self.refused[event.reason] = self.refused.get(event.reason, 0) + event.count

    def _expired(self, event: e.LeasesExpired) -> None:
        queue = self.queues.of(event.queue, event.count)
        key = (queue, self.groups.of(queue, event.group))
        self.expired[key] = self.expired.get(key, 0) + event.leases
        self.expired_messages[key] = self.expired_messages.get(key, 0) + event.count

    def _dead(self, event: e.DeadLetterAdded) -> None:
        key = (self.queues.of(event.queue), event.reason)
        self.dead[key] = self.dead.get(key, 0) + 1
        self.totals["dlq"] += 1
        self.minutes.add(key[0], "dlq", 1)

    def _promoted(self, event: e.MessagesPromoted) -> None:
        queue = self.queues.of(event.queue, event.count)
        self.promoted[queue] = self.promoted.get(queue, 0) + event.count

    def _pruned(self, event: e.MessagesPruned) -> None:
        queue = self.queues.of(event.queue, event.count)
        self.pruned[queue] = self.pruned.get(queue, 0) + event.count

    def _turn(self, event: e.TurnCommitted) -> None:
        self.turn_seconds.add(event.seconds)
        self.turn_commands.add(event.commands)
        self.turn_messages.add(event.messages)

    def _fell_back(self, _: e.TurnFellBack) -> None:
        self.fallbacks += 1

    def _lost(self, _: e.ConnectionLost) -> None:
        self.connections_lost += 1

    def _migrated(self, _: e.StoreMigrated) -> None:
        self.migrations += 1

    def _served(self, event: e.RequestServed) -> None:
        method, route = event.method, event.route
        if method not in METHODS:
            method = OTHER
        if route not in self.request_seconds:
            if len(self.request_seconds) >= MOST_ROUTES:
                route = OTHER
            self.request_seconds.setdefault(route, Histogram(REQUEST_BOUNDS))
        key = (method, route, event.status)
        self.requests[key] = self.requests.get(key, 0) + 1
        self.request_seconds[route].add(event.seconds)
        self.totals["requests"] += 1
        kind = KINDS.get(event.route)
        # A GET of `/v1/messages` lists messages. A GET of the other routes is a pop.
        if kind is not None and not (kind == "push" and event.method == "GET"):
            self._served_queen(event, kind)

    def _served_queen(self, event: e.RequestServed, kind: str) -> None:
        """Count a request for the metrics with Queen's names."""
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        queue = self.queues.known(event.queue)
        self.minutes.add(queue, REQUESTS[kind], 1)
        if kind == "pop" and not event.messages and event.status < 400:
            self.minutes.add(queue, "pop_empty", 1)
