"""Metrics service: counts the events of a server's store and answers scrapes.

A scrape reads counts from memory. A helper thread reads the depths from the store, at most once in a few seconds.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core.errors import AckwiseError
from ackwise.core.queries import StoreSize
from ackwise.observability.depths import DepthReader, Depths
from ackwise.observability.event_buffer import EventBuffer
from ackwise.observability.event_counts import EventCounts
from ackwise.observability.process_usage import process_usage
from ackwise.observability.queen_metrics import QueenFamilies, queen_json
from ackwise.observability.server_metrics import Families, ServerState, exposition
from ackwise.store.port import Store

CACHED = 5_000_000
"""Microseconds for which all scrapes show the same depths."""
SHARE = 20
"""The pause after a read of the depths is at least this many times as long as the read."""
PATIENCE = 3.0
"""Seconds that a scrape waits for new depths. After that time the scrape shows the earlier depths."""


class MetricsService:
    """Counts the events of a buffer and writes scrapes. A scrape needs a running broker."""

    def __init__(self, store: Store, events: EventBuffer) -> None:
        self._events = events
        self.counts = EventCounts(store.clock.now)
        events.add(self.counts.add)
        self._reader = DepthReader(store, self.counts, store.clock.now)
        self._depths = Depths()
        self._store_bytes: int | None = None
        self._due_at = 0
        self._failures = 0
        self._reading: asyncio.Task[None] | None = None
        self._started = time.monotonic()

    async def prometheus(self, broker: AsyncBroker, state: ServerState) -> bytes:
        """Answer to a scrape, in the text format 0.0.4."""
        await self._refresh(broker)
        depths, usage = self._depths, process_usage(self._started)
        state = self._with_reads(state)
        now, shift = broker.now_and_shift()
        self._events.flush()
        counts = self.counts.copied()
        ours = Families(counts, depths, state, usage, now=now, wall=now - shift)
        queens = QueenFamilies(counts, depths, state, usage, broker.store.traits.instance)
        return await broker.in_thread(exposition, ours.collect, queens.collect)

    def queen(self, state: ServerState) -> dict[str, Any]:
        """Queen's JSON. Reads memory only."""
        self._events.flush()
        return queen_json(self.counts, state, process_usage(self._started))

    def _with_reads(self, state: ServerState) -> ServerState:
        return msgspec.structs.replace(state, store_bytes=self._store_bytes, read_failures=self._failures)

    async def _refresh(self, broker: AsyncBroker) -> None:
        """Read the depths if they are due. Concurrent scrapes share one read."""
        if self._reading is None and broker.now() >= self._due_at:
            self._reading = broker.loop.create_task(self._read(broker))
            self._reading.add_done_callback(self._finished)
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=PATIENCE)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled():
            task.exception()

    async def _read(self, broker: AsyncBroker) -> None:
        began = time.perf_counter()
        try:
            self._depths = await broker.in_thread(self._reader.refresh, self._depths)
            self._store_bytes = await broker.ask(StoreSize())
        except AckwiseError:
            # The store does not answer. The scrape shows the earlier depths, with their age.
            self._failures += 1
        took = round((time.perf_counter() - began) * 1_000_000)
        self._due_at = broker.now() + max(CACHED, SHARE * took)
