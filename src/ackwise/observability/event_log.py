"""Event log: writes the events of a store to the loggers of the packages that they come from.

A busy server has more events than a person can read. So the log names a bounded number of requests and dead letters
each second. It adds up the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from ackwise.core import events as e
from ackwise.core.events import EventStream
from ackwise.observability.log_records import FieldValue, log_fields
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


class EventLog:
    """Listener that logs the events of a store. `now` is the store's clock, in microseconds.

    Call `tick` once a second. It writes the sums of a second even if no event follows.
    """

    def __init__(self, stream: EventStream, now: Callable[[], int]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._second = now() // SECOND
        self._requests = self._letters = self._fallbacks = 0
        self._more_requests: dict[tuple[str, str], RequestTotal] = {}
        self._more_letters: dict[tuple[str, str, str], int] = {}
        self._expired: dict[tuple[str, str], int] = {}
        self._writers: dict[type[e.Event], Callable[..., None]] = {
            e.RequestServed: self._request,
            e.TurnCommitted: self._turn,
            e.DeadLetterAdded: self._dead_letter,
            e.LeasesExpired: self._leases_expired,
            e.TurnFellBack: self._fallback,
            e.ConnectionLost: self._connection_lost,
            e.ConnectionRestored: self._connection_restored,
            e.StoreMigrated: log_migration,
            e.BrokerStarted: self._broker_started,
            e.BrokerStopped: self._broker_stopped,
        }
        self.stop = stream.subscribe(self._hear, *self._writers)

    def _hear(self, event: e.Event) -> None:
        self._writers[type(event)](event)

    def tick(self) -> None:
        """Write the sums of the last second, if it is over."""
        with self._lock:
            self._next_second()

    def close(self) -> None:
        """End the subscription and write the remaining sums."""
        self.stop()
        with self._lock:
            self._write_sums()

    def _next_second(self) -> None:
        second = self._now() // SECOND
        if second != self._second:
            self._second = second
            self._write_sums()

    def _write_sums(self) -> None:
        self._requests = self._letters = self._fallbacks = 0
        requests, self._more_requests = self._more_requests, {}
        letters, self._more_letters = self._more_letters, {}
        expired, self._expired = self._expired, {}
        for (method, route), total in requests.items():
            log_fields(
                server_log,
                logging.INFO,
                "more requests in one second",
                method=method,
                route=route,
                requests=total.requests,
                errors=total.errors,
                messages=total.messages,
                mean_ms=milliseconds(total.seconds / total.requests),
                longest_ms=milliseconds(total.longest),
            )
        for (queue, group, reason), count in letters.items():
            self._warn(engine_log, "more dead letters", queue=queue, group=group, reason=reason, messages=count)
        for (queue, group), count in expired.items():
            self._warn(engine_log, "leases expired", queue=queue, group=group, messages=count)

    def _warn(self, logger: logging.Logger, message: str, **fields: FieldValue) -> None:
        log_fields(logger, logging.WARNING, message, **fields)

    def _request(self, event: e.RequestServed) -> None:
        if not changes(event.method, event.route) or not server_log.isEnabledFor(logging.INFO):
            return
        with self._lock:
            self._next_second()
            self._requests += 1
            if self._requests > REQUESTS_A_SECOND:
                key = bounded(self._more_requests, (event.method, event.route), (OTHER, OTHER))
                total = self._more_requests.get(key)
                if total is None:
                    total = self._more_requests[key] = RequestTotal()
                total.add(event)
                return
        log_fields(
            server_log,
            logging.INFO,
            "request",
            peer=event.peer,
            method=event.method,
            route=event.route,
            command=event.command,
            queue=event.queue,
            status=event.status,
            messages=event.messages,
            ms=milliseconds(event.seconds),
        )

    def _turn(self, event: e.TurnCommitted) -> None:
        if event.seconds >= SLOW_TURN:
            self._warn(store_log, "slow turn", seconds=event.seconds, commands=event.commands, messages=event.messages)

    def _dead_letter(self, event: e.DeadLetterAdded) -> None:
        with self._lock:
            self._next_second()
            self._letters += 1
            if self._letters > DEAD_LETTERS_A_SECOND:
                key = (event.queue, event.group, event.reason)
                key = bounded(self._more_letters, key, (OTHER, OTHER, event.reason))
                self._more_letters[key] = self._more_letters.get(key, 0) + 1
                return
        self._warn(
            engine_log,
            "dead letter",
            queue=event.queue,
            group=event.group,
            id=event.id,
            reason=event.reason,
            error=event.error,
            attempts=event.attempts,
        )

    def _leases_expired(self, event: e.LeasesExpired) -> None:
        with self._lock:
            self._next_second()
            key = bounded(self._expired, (event.queue, event.group), (OTHER, OTHER))
            self._expired[key] = self._expired.get(key, 0) + event.count

    def _fallback(self, event: e.TurnFellBack) -> None:
        with self._lock:
            self._next_second()
            self._fallbacks += 1
            if self._fallbacks > FALLBACKS_A_SECOND:
                return
        self._warn(store_log, "turn failed, its commands run one by one", commands=event.commands, error=event.error)

    def _connection_lost(self, event: e.ConnectionLost) -> None:
        error = without_password(event.error)
        self._warn(store_log, "connection lost", where=without_password(event.where), error=error)

    def _connection_restored(self, event: e.ConnectionRestored) -> None:
        where = without_password(event.where)
        log_fields(store_log, logging.INFO, "connection back", where=where, seconds=event.seconds)

    def _broker_started(self, event: e.BrokerStarted) -> None:
        store = without_password(event.store)
        log_fields(broker_log, logging.INFO, "broker started", instance=event.instance, store=store)

    def _broker_stopped(self, event: e.BrokerStopped) -> None:
        log_fields(broker_log, logging.INFO, "broker stopped", instance=event.instance)


def log_migration(event: e.StoreMigrated) -> None:
    """Log new tables and changed tables of a store."""
    store = without_password(event.store)
    message = "store created" if event.before == 0 and not event.extension else "store migrated"
    log_fields(
        store_log,
        logging.INFO,
        message,
        store=store,
        extension=event.extension,
        schema_before=event.before,
        schema=event.after,
    )


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def bounded(sums: dict[K, object] | dict[K, int] | dict[K, RequestTotal], key: K, other: K) -> K:
    """The key, or `other` if the sums have too many keys."""
    return key if key in sums or len(sums) < MOST_GROUPS else other
