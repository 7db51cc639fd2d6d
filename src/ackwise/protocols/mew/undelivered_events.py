"""Undelivered events: releases the deliveries of events that no client gets. A release costs no failure."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core.errors import AckwiseError
from ackwise.graph.commands import FetchedEvents, FetchGraph, ReleaseGraph
from ackwise.protocols.answer_memory import AnswerMemory, PendingAnswer
from ackwise.protocols.mew.aio.driver import AsyncDriver
from ackwise.protocols.mew.session_flow import Request

AT_ONCE = 200
"""Deliveries that one turn releases."""


class UndeliveredEvents:
    """Deliveries that one call or socket has fetched for a session, and that its client does not have yet."""

    def __init__(self, broker: AsyncBroker, session: str) -> None:
        self._broker, self._session = broker, session
        self._deliveries: dict[str, None] = {}
        """Delivery ids, in the order of their events."""
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
        self._deliveries |= _deliveries_of(fetched)
        return fetched

    def sent(self, delivery_id: str | None) -> None:
        """The client has this delivery."""
        if delivery_id is not None:
            self._deliveries.pop(delivery_id, None)

    def delivered(self) -> None:
        """The client has all of them."""
        self._deliveries.clear()

    def release_soon(self) -> None:
        """Start to release the deliveries that the client does not have."""
        fetch, self._fetch = self._fetch, None
        deliveries, self._deliveries = self._deliveries, {}
        if fetch is not None or deliveries:
            self._idle.clear()
            self._broker.start_task(self._release(fetch, deliveries))

    async def _release(self, fetch: asyncio.Future[FetchedEvents] | None, deliveries: dict[str, None]) -> None:
        try:
            if fetch is not None:
                with suppress(AckwiseError):
                    deliveries |= _deliveries_of(await fetch)
            ids = iter(deliveries)
            while part := tuple(islice(ids, AT_ONCE)):
                with suppress(AckwiseError):  # the deliveries expire at their deadline
                    await self._broker.send(ReleaseGraph(session=self._session, deliveries=part))
        finally:
            self._idle.set()

    async def released(self) -> None:
        """Wait until the release that was started has ended."""
        await self._idle.wait()


def _deliveries_of(fetched: FetchedEvents) -> dict[str, None]:
    events = (event for event in fetched.events if event.kind == "consumed")
    return {event.delivery_id: None for event in events if event.delivery_id is not None}


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
