"""Leases are held for as long as somebody works under them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ackwise.client.aio.lease import AsyncLease
from ackwise.core.errors import LeaseLost

log = logging.getLogger("ackwise.subscriber")

LOOK_EVERY = 1.0
"""Seconds; more often where a lease is short."""
SHORTEST_PATIENCE = 0.5
"""Seconds for the answer to an extension; a quarter of a lease that is longer, so that there is time for another."""


class Keeper:
    """Extends leases when half of their time has gone, while something under them waits for its handler or is in it.

    What a handler left unsettled is counted until its deadline, and not extended.
    """

    def __init__(self, now: Callable[[], int], freed: Callable[[], None]) -> None:
        self._now, self._freed = now, freed
        self._working: dict[AsyncLease, set[Any]] = {}
        self._left: dict[Any, AsyncLease] = {}
        self._extending: set[AsyncLease] = set()
        self._count = 0
        self._look = asyncio.Event()
        self._every = LOOK_EVERY

    def __len__(self) -> int:
        """How many are held and not settled."""
        return self._count

    def hold(self, handover: Any, lease: AsyncLease) -> None:
        works = self._working.get(lease)
        if works is None:
            works = self._working[lease] = set()
            every = max(0.02, lease.lasts / 4)
            if every < self._every:
                self._every = every
                self._look.set()
        works.add(handover)
        self._count += 1

    def leave(self, handover: Any) -> None:
        """Its handler is through, and it is not settled."""
        lease = handover.delivery.lease
        if self._drop(handover, lease):
            self._left[handover] = lease

    def forget(self, handover: Any) -> None:
        if self._drop(handover, handover.delivery.lease) or self._left.pop(handover, None) is not None:
            self._count -= 1

    def _drop(self, handover: Any, lease: AsyncLease) -> bool:
        works = self._working.get(lease)
        if works is None or handover not in works:
            return False
        works.discard(handover)
        if not works:
            del self._working[lease]
        return True

    def look(self) -> None:
        """The clock was moved."""
        self._look.set()

    async def run(self, lost: Callable[[Any], None]) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._look.wait(), self._every)
                self._look.clear()
                self._beat(lost, group)

    def _beat(self, lost: Callable[[Any], None], group: asyncio.TaskGroup) -> None:
        """Extend what is due, each by itself: one that is not answered holds up no other. Tell of what is gone."""
        now = self._now()
        for handover in [one for one, lease in self._left.items() if lease.deadline <= now]:
            self._give_up(handover)
        for lease in list(self._working):
            if lease.deadline <= now and not lease.ends_itself:
                self._lose(lease, lost)
            elif lease not in self._extending:
                self._extending.add(lease)
                group.create_task(self._extend(lease, lost), name="ackwise-extend")

    async def _extend(self, lease: AsyncLease, lost: Callable[[Any], None]) -> None:
        try:
            async with asyncio.timeout(max(SHORTEST_PATIENCE, lease.lasts / 4)):
                await lease.keep_alive()
        except LeaseLost:
            self._lose(lease, lost)
        except TimeoutError:
            log.warning("a lease could not be extended, and is tried again: no answer")
            self._look.set()
        except Exception as problem:
            log.warning("a lease could not be extended, and is tried again: %s", problem)
        finally:
            self._extending.discard(lease)

    def _lose(self, lease: AsyncLease, lost: Callable[[Any], None]) -> None:
        if lease.ends_itself:
            return
        for handover in list(self._working.get(lease, ())):
            self._give_up(handover)
            lost(handover)

    def _give_up(self, handover: Any) -> None:
        handover.held = False
        self.forget(handover)
        self._freed()
