"""Undelivered events: deliveries between their fetch and their client.

The ack timeout of a delivery starts when the client gets it. A delivery that no client gets is released, which costs
no failure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from ackwise.broker import AsyncBroker
from ackwise.core.errors import AckwiseError
from ackwise.graph.commands import FetchedEvents, FetchGraph, ReleaseGraph, RestartClocks
from ackwise.protocols.answer_memory import AnswerMemory, PendingAnswer
from ackwise.protocols.mew.aio.driver import AsyncDriver
from ackwise.protocols.mew.session_flow import Request

AT_ONCE = 200
"""Deliveries that one turn releases, or whose ack timeouts it starts again."""
LOOK_EVERY = 1.0
"""Seconds between two looks at deliveries that wait for their client. Shorter for short ack timeouts."""
KEPT_ALIVE = 60.0
"""Seconds for which a delivery that waits for its client does not expire. A client that does not read must not hold it
for ever."""
TOLERANCE = 100_000
"""Microseconds between fetch and client after which the ack timeout starts again."""


class Undelivered(NamedTuple):
    """A delivery that its client does not have yet."""

    ack_timeout: int
    started_at: int
    """When its ack timeout last started, on the broker's clock."""

    def is_late(self, now: int) -> bool:
        """Whether a client that gets the delivery now would miss a part of the ack timeout that matters."""
        return now - self.started_at >= min(TOLERANCE, self.ack_timeout // 10)

    def is_aging(self, now: int) -> bool:
        """Whether a third of the ack timeout is over."""
        return now - self.started_at >= self.ack_timeout // 3


Deliveries = dict[str, Undelivered]


class UndeliveredEvents:
    """Deliveries that one call or socket has fetched for a session, and that its client does not have yet."""

    def __init__(self, broker: AsyncBroker, session: str) -> None:
        self._broker, self._session = broker, session
        self._deliveries: Deliveries = {}
        """By delivery id, in the order of their events."""
        self._look: asyncio.TimerHandle | None = None
        self._keep_until = 0.0
        self._fetch: asyncio.Future[FetchedEvents] | None = None
        """The fetch that runs. It ends in the store also if its caller is cancelled."""
        self._idle = asyncio.Event()
        self._idle.set()

    async def fetch(self, command: FetchGraph) -> FetchedEvents:
        """Fetch events and note their deliveries, also if the caller is cancelled meanwhile."""
        self._fetch = asyncio.ensure_future(self._broker.send(command))
        try:
            fetched = await asyncio.shield(self._fetch)
        except AckwiseError:
            self._fetch = None
            raise
        self._fetch = None
        self._note(fetched)
        return fetched

    def _note(self, fetched: FetchedEvents) -> None:
        deliveries = _deliveries_of(fetched, self._broker.now())
        if deliveries:
            if not self._deliveries:
                self._keep_until = time.monotonic() + KEPT_ALIVE
            self._deliveries |= deliveries
            self._look_later()

    def sent(self, delivery_id: str | None) -> None:
        """The client has this delivery."""
        delivery = self._deliveries.pop(delivery_id, None) if delivery_id is not None else None
        if delivery_id is not None and delivery is not None:
            self._restart({delivery_id: delivery})
        if not self._deliveries:
            self._stop_looking()

    def delivered(self) -> None:
        """The client has all of them."""
        self._stop_looking()
        deliveries, self._deliveries = self._deliveries, {}
        self._restart(deliveries)

    # the ack timeout

    def _restart(self, deliveries: Deliveries) -> None:
        """Start the ack timeouts of deliveries that their client got late."""
        now = self._broker.now()
        late = [delivery_id for delivery_id, delivery in deliveries.items() if delivery.is_late(now)]
        if late:
            self._broker.start_task(self._send_restart(late))

    async def _send_restart(self, deliveries: Iterable[str]) -> None:
        ids = iter(deliveries)
        while part := tuple(islice(ids, AT_ONCE)):
            with suppress(AckwiseError):  # the deliveries keep their deadline
                await self._broker.send(RestartClocks(session=self._session, deliveries=part))

    def _look_later(self) -> None:
        """Look at the deliveries again before one of them expires."""
        if self._look is None:
            shortest = min(delivery.ack_timeout for delivery in self._deliveries.values())
            self._look = self._broker.loop.call_later(min(LOOK_EVERY, shortest / 3e6), self._keep_alive)

    def _keep_alive(self) -> None:
        """Start ack timeouts again while the deliveries wait for their client."""
        self._look = None
        if not self._deliveries or time.monotonic() > self._keep_until:
            return
        now = self._broker.now()
        aging = [delivery_id for delivery_id, delivery in self._deliveries.items() if delivery.is_aging(now)]
        for delivery_id in aging:
            self._deliveries[delivery_id] = self._deliveries[delivery_id]._replace(started_at=now)
        if aging:
            self._broker.start_task(self._send_restart(aging))
        self._look_later()

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None

    # release

    def release_soon(self) -> None:
        """Start to release the deliveries that the client does not have."""
        self._stop_looking()
        fetch, self._fetch = self._fetch, None
        deliveries, self._deliveries = self._deliveries, {}
        if fetch is not None or deliveries:
            self._idle.clear()
            self._broker.start_task(self._release(fetch, deliveries))

    async def _release(self, fetch: asyncio.Future[FetchedEvents] | None, deliveries: Deliveries) -> None:
        try:
            if fetch is not None:
                with suppress(AckwiseError):
                    deliveries |= _deliveries_of(await fetch, 0)
            ids = iter(deliveries)
            while part := tuple(islice(ids, AT_ONCE)):
                with suppress(AckwiseError):  # the deliveries expire at their deadline
                    await self._broker.send(ReleaseGraph(session=self._session, deliveries=part))
        finally:
            self._idle.set()

    async def released(self) -> None:
        """Wait until the release that was started has ended."""
        await self._idle.wait()


def _deliveries_of(fetched: FetchedEvents, now: int) -> Deliveries:
    events = (event for event in fetched.events if event.kind == "consumed")
    return {event.delivery_id: Undelivered(event.ack_timeout or 0, now) for event in events if event.delivery_id}


class FetchDriver(AsyncDriver):
    """Driver whose fetches note their deliveries as undelivered."""

    def __init__(self, driver: AsyncDriver, undelivered: UndeliveredEvents) -> None:
        super().__init__(driver.broker, driver.parser)
        self._undelivered = undelivered

    async def execute(self, request: Request) -> Any:
        if isinstance(request, FetchGraph):
            return await self._undelivered.fetch(request)
        return await super().execute(request)


class PendingEvents(PendingAnswer):
    """Pending answer with events. A lost answer releases their deliveries."""

    __slots__ = ("_undelivered",)

    def __init__(self, memory: AnswerMemory, peer: str, undelivered: UndeliveredEvents) -> None:
        super().__init__(memory, peer)
        self._undelivered = undelivered

    def delivered(self) -> None:
        self._undelivered.delivered()
        super().delivered()

    def lost(self) -> None:
        self._undelivered.release_soon()
        super().lost()
