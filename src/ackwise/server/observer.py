"""Observer of a server: the event log, the metrics with their routes, and the log of start, drain and stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core.errors import AckwiseError
from ackwise.core.rows import MaintenanceState
from ackwise.observability.debug_log import DebugLog, debug_records
from ackwise.observability.event_buffer import EventBuffer
from ackwise.observability.event_log import EventLog
from ackwise.observability.log_records import FieldValue, log_fields
from ackwise.observability.log_setup import installed_writer
from ackwise.observability.metrics_service import MetricsService
from ackwise.observability.server_metrics import CONTENT_TYPE, ServerState
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.product_version import VERSION
from ackwise.protocols.queen import MaintenanceWatch
from ackwise.protocols.route_docs import RouteDoc
from ackwise.server.settings import Settings
from ackwise.store.port import Store
from ackwise.wire.store_url import without_password

log = logging.getLogger("ackwise.server")

TICK = 1.0
"""Seconds between two flushes of the events. The log's writer flushes sooner when events wait."""
PROGRESS_EVERY = 1.0
"""Seconds between two log lines of a drain."""
_ADDRESS_SETTINGS = frozenset({"host", "port", "pushpop_port", "amps_port"})
"""Settings that the log shows as listening addresses."""
_PROMETHEUS_DOC = RouteDoc(
    summary="Metrics for Prometheus", tag="server", answers={200: bytes}, answer_types=(CONTENT_TYPE,)
)
_QUEEN_DOC = RouteDoc(summary="Metrics in Queen's format: uptime, requests, messages, memory and CPU", tag="server")


class Load(msgspec.Struct):
    """Current connections by listener, and number of running requests."""

    connections: dict[str, int]
    requests: int = 0


class Observer:
    """Logs and counts the events of a server until `stop_listening`."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._events = EventBuffer(store.events, store.clock.now)
        self._log = EventLog(store.clock.now)
        self._events.add(self._log.add)
        self._debug = DebugLog(store.events)
        self._metrics = MetricsService(store, self._events)
        self._leave_writer = _nothing
        writer = installed_writer()
        if writer is not None:
            # The thread that writes the log also runs the batch step.
            self._leave_writer = writer.add_source(self._events.flush_and_count)
            self._events.on_first = writer.ask_sources
        self._lag = 0.0
        self.load: Callable[[], Load] = lambda: Load({})
        """Returns the current connections and requests. The server sets this function."""
        self.maintenance: MaintenanceWatch | None = None
        """The server sets the watch when it starts."""

    def routes(self, broker: AsyncBroker) -> list[Route]:
        async def prometheus(_: Call) -> Answer:
            body = await self._metrics.prometheus(broker, self._state(broker, await self._spool()))
            return Answer(body, content_type=CONTENT_TYPE.encode())

        async def queen(_: Call) -> Answer:
            return answer(self._metrics.queen(self._state(broker)))

        return [
            Route("GET", "/metrics/prometheus", prometheus, doc=_PROMETHEUS_DOC),
            Route("GET", "/metrics", queen, doc=_QUEEN_DOC),
        ]

    async def _spool(self) -> MaintenanceState | None:
        """The maintenance switches. Counts the spool only if messages may wait in it."""
        watch = self.maintenance
        if watch is None or not watch.may_keep_pushes:
            return None if watch is None else watch.state
        with contextlib.suppress(AckwiseError):
            return await watch.refresh(counted=True)
        return watch.state

    def _state(self, broker: AsyncBroker, spool: MaintenanceState | None = None) -> ServerState:
        load = self.load()
        waiters = {queue: sum(map(len, polls.values())) for queue, polls in list(broker.long_polls.parked.items())}
        return ServerState(
            version=VERSION,
            store="sqlite" if self._store.traits.local else "postgresql",
            long_polls=len(broker.long_polls),
            waiters=waiters,
            connections=load.connections,
            running_requests=load.requests,
            writers=self._store.traits.shards,
            busy_writers=broker.busy_writers,
            loop_lag=self._lag,
            maintenance=spool is not None and spool.push,
            spooled=0 if spool is None else spool.messages,
            spool_failed=0 if spool is None else spool.failed,
            healthy=broker.pulse.health().error is None,
            draining=broker.draining,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Flush the events once a second inside the block. At the end, write the remaining sums to the log."""
        task = asyncio.get_running_loop().create_task(self._tick())
        try:
            yield
        finally:
            task.cancel()
            self.stop_listening()

    def flush(self) -> None:
        """Log and count the events until now."""
        self._events.flush()

    def stop_listening(self) -> None:
        """End logs and metrics. Writes the remaining sums to the log."""
        self._events.close()
        self._debug.stop()
        self._log.close()
        self._leave_writer()
        self._leave_writer = _nothing

    async def _tick(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(TICK)
            self._lag = max(0.0, time.monotonic() - began - TICK)
            debug_records.tick()
            self.flush()

    def started(self, addresses: dict[str, str]) -> None:
        """Log the start with the addresses and the settings in force."""
        self.flush()
        store = without_password(self._store.traits.name)
        fields: dict[str, FieldValue] = {
            "version": VERSION,
            "store": store,
            "schema": self._store.traits.schema,
            **addresses,
        }
        log_fields(log, logging.INFO, "server started", **fields, **shown_settings(self._settings))

    @contextlib.asynccontextmanager
    async def drain(self, broker: AsyncBroker) -> AsyncIterator[None]:
        """Log the progress of the drain once a second inside the block. At the end, log the stop."""
        began = time.monotonic()
        task = asyncio.get_running_loop().create_task(self._log_progress(broker, began))
        try:
            yield
        finally:
            task.cancel()
            log_fields(log, logging.INFO, "server stopped", seconds=round(time.monotonic() - began, 3))

    async def _log_progress(self, broker: AsyncBroker, began: float) -> None:
        while True:
            load = self.load()
            self.flush()
            log_fields(
                log,
                logging.INFO,
                "server drains",
                seconds=round(time.monotonic() - began, 3),
                grace=self._settings.grace,
                requests=load.requests,
                long_polls=len(broker.long_polls),
                **{f"{listener}_connections": count for listener, count in load.connections.items()},
            )
            await asyncio.sleep(PROGRESS_EVERY)


def _nothing() -> None:
    pass


def shown_settings(settings: Settings) -> dict[str, FieldValue]:
    """Settings as fields of a log record, without addresses and without passwords."""
    fields: dict[str, FieldValue] = {}
    for name, setting in msgspec.structs.asdict(settings).items():
        if isinstance(setting, msgspec.Struct):
            fields |= {f"{name}_{part}": value for part, value in msgspec.structs.asdict(setting).items()}
        elif name not in _ADDRESS_SETTINGS:
            fields[name] = without_password(",".join(map(str, setting))) if isinstance(setting, tuple) else setting
    return fields
