"""Debug log: turns, messages, connections and hooks, a bounded number of records per second."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ackwise.core import events as e
from ackwise.core.events import EventStream
from ackwise.observability.event_log import broker_log, changes, engine_log, milliseconds, server_log, store_log
from ackwise.observability.log_records import FieldValue, log_fields

RECORDS_A_SECOND = 20
"""Maximum number of debug records with the same message in one second. The log counts the others."""


QUIET_TURN = 0.01
"""Seconds below which a turn without messages is not logged."""


class DebugRecords:
    """Writes debug records. Of each message it writes at most `RECORDS_A_SECOND` in a second, then their number."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._second = 0
        self._counts: dict[tuple[logging.Logger, str], int] = {}

    def write(self, logger: logging.Logger, message: str, /, **fields: FieldValue) -> None:
        """Write a record, unless the logger is above the level debug. Pass only constant messages."""
        if not logger.isEnabledFor(logging.DEBUG):
            return
        with self._lock:
            self._next_second()
            count = self._counts.get((logger, message), 0) + 1
            self._counts[logger, message] = count
        if count <= RECORDS_A_SECOND:
            log_fields(logger, logging.DEBUG, message, **fields)

    def tick(self) -> None:
        """Write the numbers of the last second, if it is over."""
        with self._lock:
            self._next_second()

    def _next_second(self) -> None:
        second = int(self._now())
        if second == self._second:
            return
        self._second = second
        counts, self._counts = self._counts, {}
        for (logger, message), count in counts.items():
            if count > RECORDS_A_SECOND:
                records = count - RECORDS_A_SECOND
                log_fields(logger, logging.DEBUG, "more debug records", record=message, records=records)


debug_records = DebugRecords()
"""The debug records of this process."""


class DebugLog:
    """Listener that writes the events of a store at the level debug.

    It subscribes only to events whose logger has the level debug when it starts, so that other levels cost nothing.
    """

    def __init__(self, stream: EventStream, records: DebugRecords = debug_records) -> None:
        self._records = records
        self._writers: dict[type[e.Event], Callable[..., None]] = {
            kind: writer for kind, (logger, writer) in self._all().items() if logger.isEnabledFor(logging.DEBUG)
        }
        self.stop: Callable[[], None] = lambda: None
        if self._writers:
            self.stop = stream.subscribe(self._hear, *self._writers)

    def _all(self) -> dict[type[e.Event], tuple[logging.Logger, Callable[..., None]]]:
        return {
            e.TurnCommitted: (store_log, self._turn),
            e.MessagesPushed: (engine_log, self._pushed),
            e.MessagesClaimed: (engine_log, self._claimed),
            e.MessagesSettled: (engine_log, self._settled),
            e.RequestsRefused: (engine_log, self._refused),
            e.MessagesPromoted: (engine_log, self._promoted),
            e.MessagesPruned: (engine_log, self._pruned),
            e.SpoolReplayed: (engine_log, self._replayed),
            e.MaintenanceChanged: (broker_log, self._maintenance),
            e.HookDelivered: (server_log, self._hook_delivered),
            e.HookFailed: (server_log, self._hook_failed),
            e.RequestServed: (server_log, self._request),
        }

    def _hear(self, event: e.Event) -> None:
        self._writers[type(event)](event)

    def _turn(self, event: e.TurnCommitted) -> None:
        if not event.messages and event.seconds < QUIET_TURN:
            return  # a heartbeat or a sweep of an idle server
        ms = milliseconds(event.seconds)
        self._records.write(store_log, "turn", commands=event.commands, messages=event.messages, ms=ms)

    def _pushed(self, event: e.MessagesPushed) -> None:
        duplicates = event.duplicates or None
        self._records.write(engine_log, "pushed", queue=event.queue, messages=event.count, duplicates=duplicates)

    def _claimed(self, event: e.MessagesClaimed) -> None:
        self._records.write(engine_log, "claimed", queue=event.queue, group=event.group, messages=event.count)

    def _settled(self, event: e.MessagesSettled) -> None:
        self._records.write(
            engine_log, "settled", queue=event.queue, group=event.group, outcome=event.outcome, messages=event.count
        )

    def _refused(self, event: e.RequestsRefused) -> None:
        self._records.write(engine_log, "refused", reason=event.reason, requests=event.count)

    def _promoted(self, event: e.MessagesPromoted) -> None:
        self._records.write(engine_log, "scheduled messages are due", queue=event.queue, messages=event.count)

    def _pruned(self, event: e.MessagesPruned) -> None:
        self._records.write(engine_log, "retention removed messages", queue=event.queue, messages=event.count)

    def _replayed(self, event: e.SpoolReplayed) -> None:
        self._records.write(engine_log, "replayed the spool", messages=event.count, refused=event.refused)

    def _maintenance(self, event: e.MaintenanceChanged) -> None:
        self._records.write(broker_log, "maintenance changed", push=event.push, pop=event.pop)

    def _hook_delivered(self, event: e.HookDelivered) -> None:
        self._records.write(server_log, "hook reported a dead letter", queue=event.queue, hook=event.hook, id=event.id)

    def _hook_failed(self, event: e.HookFailed) -> None:
        self._records.write(
            server_log,
            "hook failed",
            queue=event.queue,
            hook=event.hook,
            id=event.id,
            error=event.error,
            failures=event.failures,
            retry_seconds=event.retry_seconds,
        )

    def _request(self, event: e.RequestServed) -> None:
        if changes(event.method, event.route):
            return  # the event log has it at the level info
        self._records.write(
            server_log,
            "read",
            peer=event.peer,
            method=event.method,
            route=event.route,
            queue=event.queue,
            status=event.status,
            ms=milliseconds(event.seconds),
        )
