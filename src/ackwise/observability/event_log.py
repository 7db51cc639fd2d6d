"""Event log: writes batches of events to the loggers of the packages that they come from.

A busy server has more events than a person can read. So the log names a bounded number of requests and dead letters
each second. It adds up the others, and builds no records for them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from ackwise.core import events as e
from ackwise.engine.turn_events import TurnReport
from ackwise.observability.event_buffer import Batch
from ackwise.observability.log_records import Fields, log_at
from ackwise.wire.store_url import without_password

server_log = logging.getLogger("ackwise.server")
broker_log = logging.getLogger("ackwise.broker")
engine_log = logging.getLogger("ackwise.engine")
store_log = logging.getLogger("ackwise.store")

REQUESTS_A_SECOND = 100
DEAD_LETTERS_A_SECOND = 10
FALLBACKS_A_SECOND = 10
SLOW_TURN = 1.0
"""The log reports turns that take at least this many seconds."""
MOST_GROUPS = 1000
"""Maximum number of keys, such as queue and group, in the sums of one second. Further keys count as `other`."""
OTHER = "other"
SECOND = 1_000_000
READS = frozenset({"/v1/ask", "/v1/read", "/v1/stop", "/api/v1/stats/refresh", "unknown"})
"""Routes with POST that change no queue. `unknown` stands for a path without a route."""
POPS = "/api/v1/pop"
"""Routes with GET that change a queue begin with this path."""

K = TypeVar("K")


@lru_cache(maxsize=1000)
def changes(method: str, route: str) -> bool:
    """Whether requests of a route change queues or messages."""
    return route.startswith(POPS) if method in ("GET", "HEAD", "OPTIONS") else route not in READS


class RequestTotal:
    """Sum of the requests of one route that have no records of their own, for one second."""

    __slots__ = ("errors", "longest", "messages", "requests", "seconds")

    def __init__(self) -> None:
        self.requests = self.errors = self.messages = 0
        self.seconds = self.longest = 0.0

    def add(self, event: e.RequestServed) -> None:
        self.requests += 1
        self.errors += event.status >= 400
        self.messages += event.messages
        self.seconds += event.seconds
        self.longest = max(self.longest, event.seconds)

    def fields(self, method: str, route: str) -> Fields:
        return Fields(
            method=method,
            route=route,
            requests=self.requests,
            errors=self.errors,
            messages=self.messages,
            mean_ms=milliseconds(self.seconds / self.requests),
            longest_ms=milliseconds(self.longest),
        )


class EventLog:
    """Consumer that logs the events of an event buffer. `now` is the store's clock, in microseconds.

    A batch belongs to the second in which it began. An empty batch ends a second that is over.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._lock = threading.Lock()
        self._second = now() // SECOND
        self._requests = self._letters = self._fallbacks = 0
        self._more_requests: dict[tuple[str, str], RequestTotal] = {}
        self._more_letters: dict[tuple[str, str, str], int] = {}
        self._expired: dict[tuple[str, str], int] = {}
        self._writers: dict[type, Callable[[float, Any], None]] = {
            TurnReport: self._turn,
            e.DeadLetterAdded: self._dead_letter,
            e.TurnFellBack: self._fallback,
            e.ConnectionLost: self._connection_lost,
            e.ConnectionRestored: self._connection_restored,
            e.StoreMigrated: self._migrated,
            e.BrokerStarted: self._broker_started,
            e.BrokerStopped: self._broker_stopped,
        }

    def add(self, batch: Batch) -> None:
        """Log a batch. An event keeps the time at which it was emitted."""
        with self._lock:
            second = batch.at // SECOND
            if second != self._second:
                self._end_second(batch.entries[0][0] if batch.entries else time.time())
                self._second = second
            logs_requests = server_log.isEnabledFor(logging.INFO)
            for at, event in batch.entries:
                if type(event) is not e.RequestServed:
                    self._write(at, event)
                elif logs_requests and changes(event.method, event.route):
                    self._request(at, event)

    def _request(self, at: float, event: e.RequestServed) -> None:
        self._requests += 1
        if self._requests > REQUESTS_A_SECOND:
            self._add_up(event)
        else:
            log_request(at, event)

    def _write(self, at: float, event: object) -> None:
        write = self._writers.get(type(event))
        if write is not None:
            write(at, event)

    def close(self) -> None:
        """Write the remaining sums."""
        with self._lock:
            self._end_second(time.time())

    def _end_second(self, at: float) -> None:
        """Write the sums of the second, and begin to count again. `at` is the time of the records."""
        self._requests = self._letters = self._fallbacks = 0
        requests, self._more_requests = self._more_requests, {}
        letters, self._more_letters = self._more_letters, {}
        expired, self._expired = self._expired, {}
        for (method, route), total in requests.items():
            log_at(at, server_log, logging.INFO, "more requests in one second", total.fields(method, route))
        for (queue, group, reason), count in letters.items():
            fields = Fields(queue=queue, group=group, reason=reason, messages=count)
            log_at(at, engine_log, logging.WARNING, "more dead letters", fields)
        for (queue, group), count in expired.items():
            fields = Fields(queue=queue, group=group, messages=count)
            log_at(at, engine_log, logging.WARNING, "leases expired", fields)

    def _add_up(self, event: e.RequestServed) -> None:
        key = bounded(self._more_requests, (event.method, event.route), (OTHER, OTHER))
        total = self._more_requests.get(key)
        if total is None:
            total = self._more_requests[key] = RequestTotal()
        total.add(event)

    def _turn(self, at: float, report: TurnReport) -> None:
        for (queue, group, outcome, _), (count, _) in report.tally.items():
            if outcome == "lease_expired":
                key = bounded(self._expired, (queue, group), (OTHER, OTHER))
                self._expired[key] = self._expired.get(key, 0) + count
        for event in report.others:
            self._write(at, event)
        if report.seconds >= SLOW_TURN:
            fields = Fields(seconds=report.seconds, commands=report.commands, messages=report.messages)
            log_at(at, store_log, logging.WARNING, "slow turn", fields)

    def _dead_letter(self, at: float, event: e.DeadLetterAdded) -> None:
        self._letters += 1
        if self._letters > DEAD_LETTERS_A_SECOND:
            key = (event.queue, event.group, event.reason)
            key = bounded(self._more_letters, key, (OTHER, OTHER, event.reason))
            self._more_letters[key] = self._more_letters.get(key, 0) + 1
            return
        fields = Fields(
            queue=event.queue,
            group=event.group,
            id=event.id,
            reason=event.reason,
            error=event.error,
            attempts=event.attempts,
        )
        log_at(at, engine_log, logging.WARNING, "dead letter", fields)

    def _fallback(self, at: float, event: e.TurnFellBack) -> None:
        self._fallbacks += 1
        if self._fallbacks <= FALLBACKS_A_SECOND:
            fields = Fields(commands=event.commands, error=event.error)
            log_at(at, store_log, logging.WARNING, "turn failed, its commands run one by one", fields)

    def _connection_lost(self, at: float, event: e.ConnectionLost) -> None:
        fields = Fields(where=without_password(event.where), error=without_password(event.error))
        log_at(at, store_log, logging.WARNING, "connection lost", fields)

    def _connection_restored(self, at: float, event: e.ConnectionRestored) -> None:
        fields = Fields(where=without_password(event.where), seconds=event.seconds)
        log_at(at, store_log, logging.INFO, "connection back", fields)

    def _migrated(self, at: float, event: e.StoreMigrated) -> None:
        log_migration(event, at)

    def _broker_started(self, at: float, event: e.BrokerStarted) -> None:
        fields = Fields(instance=event.instance, store=without_password(event.store))
        log_at(at, broker_log, logging.INFO, "broker started", fields)

    def _broker_stopped(self, at: float, event: e.BrokerStopped) -> None:
        log_at(at, broker_log, logging.INFO, "broker stopped", Fields(instance=event.instance))


def log_request(at: float, event: e.RequestServed) -> None:
    fields = Fields(
        peer=event.peer,
        method=event.method,
        route=event.route,
        command=event.command,
        queue=event.queue,
        status=event.status,
        messages=event.messages,
        ms=milliseconds(event.seconds),
    )
    log_at(at, server_log, logging.INFO, "request", fields)


def log_migration(event: e.StoreMigrated, at: float | None = None) -> None:
    """Log new tables and changed tables of a store. `at` is the time of the event. The default is now."""
    message = "store created" if event.before == 0 and not event.extension else "store migrated"
    fields = Fields(
        store=without_password(event.store),
        extension=event.extension,
        schema_before=event.before,
        schema=event.after,
    )
    log_at(time.time() if at is None else at, store_log, logging.INFO, message, fields)


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def bounded(sums: dict[K, object] | dict[K, int] | dict[K, RequestTotal], key: K, other: K) -> K:
    """The key, or `other` if the sums have too many keys."""
    return key if key in sums or len(sums) < MOST_GROUPS else other
