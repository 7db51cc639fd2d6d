"""The subscribers of one queue and group: served in turns, so that those with room get alike."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ackwise.broker import AsyncBroker
from ackwise.core.answers import Handed
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim, giving_back
from ackwise.core.errors import AckwiseError, Draining, UnknownQueue
from ackwise.dialects.handover import AnswerMemory

if TYPE_CHECKING:
    from ackwise.dialects.amps.subscription import Subscription

log = logging.getLogger("ackwise.amps")

LONGEST_WAIT = 600.0
MOST_BYTES = 4 << 20
"""Bytes that one claim takes for all subscribers together."""
MOST = 256
FIRST_SIZE = 1048576.0
"""What a message is taken to weigh before the first was seen."""
PAUSE = 0.5


class Share:
    """Claims for its subscribers round by round; while there is nothing, one claim waits for the next in turn."""

    def __init__(
        self, broker: AsyncBroker, queue: str, group: str, on_empty: Callable[[], object], memory: AnswerMemory
    ) -> None:
        self._broker, self._queue, self._group, self._on_empty = broker, queue, group, on_empty
        self._memory = memory
        self._members: deque[Subscription] = deque()
        self._news = asyncio.Event()
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        """No claim may take anything but one that waits, and whose wait was not ended."""
        self._wait_over: asyncio.Future[None] | None = None
        self._waits_for: Subscription | None = None
        self._each = 1
        self._size = FIRST_SIZE
        self._task: asyncio.Task[None] | None = None

    def join(self, member: Subscription) -> None:
        self._members.append(member)
        if self._task is None or self._task.done():
            self._task = self._broker.loop.create_task(self._run())
        self.look()

    async def leave(self, member: Subscription) -> None:
        """When this returns nothing is claimed for it any more: what it gives back is not given to it."""
        if member in self._members:
            self._members.remove(member)
            if not self._members:
                self._on_empty()
        self.look()
        await self._at_rest.wait()

    def look(self) -> None:
        """Somebody may have room now, or none any more."""
        self._news.set()
        if self._waits_for is not None and not self._waits_for.room:
            self._stop_waiting()

    async def step_back(self, member: Subscription) -> None:
        """It is about to give a message back: the others are asked first, from when this returns."""
        self.come_last(member)
        await self._at_rest.wait()

    def come_last(self, member: Subscription) -> None:
        """The others are asked first."""
        if member in self._members:
            self._members.remove(member)
            self._members.append(member)
        if self._waits_for is member and any(one.room for one in self._members if one is not member):
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        """A turn may have the claim in hand just now: only when that is over nothing more is found."""
        if self._wait_over is not None and not self._wait_over.done():
            self._at_rest.clear()
            self._wait_over.set_result(None)

    async def _run(self) -> None:
        while self._members:
            try:
                await self._serve()
            except Draining:
                return
            except UnknownQueue:
                await self._pause()
            except Exception as problem:
                level = logging.WARNING if isinstance(problem, AckwiseError) else logging.ERROR
                log.log(level, "queue %s: %r; trying again", self._queue, problem)
                await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(PAUSE)

    async def _serve(self) -> None:
        self._news.clear()
        if not (ready := self._ready()):
            await self._news.wait()
        elif not await self._round(ready):
            await self._wait()

    def _ready(self) -> list[Subscription]:
        return [] if self._memory.full else [member for member in self._members if member.room]

    async def _round(self, ready: list[Subscription]) -> bool:
        """One claim for each, in one turn; whether there was anything."""
        most = self._most(ready)
        claims = [self._claim(member, min(member.room, most)) for member in ready]
        self._at_rest.clear()
        try:
            handed = await self._broker.claim_each(claims)
            failed = [await self._handed(member, one) for member, one in zip(ready, handed, strict=True)]
            if (problem := next(filter(None, failed), None)) is not None:
                raise problem
        finally:
            self._at_rest.set()
        full = all(one.claimed.count == claim.most for claim, one in zip(claims, handed, strict=True))
        self._each = min(MOST, 2 * self._each) if full else 1
        found = any(one.claimed.grants for one in handed)
        if found:
            self._members.rotate(-1)
        return found

    def _most(self, ready: list[Subscription]) -> int:
        """Little while it may not be enough for all, more from round to round while it is."""
        most = min(MOST, max(1, int(MOST_BYTES / self._size)))
        if len(ready) == 1:
            return most
        return min(most, self._each, max(1, min(member.backlog for member in ready) // 4))

    async def _wait(self) -> None:
        """Park one claim for the next in turn. What another has room for meanwhile is looked for when it is back."""
        if not (ready := self._ready()):
            return
        self._waits_for = member = ready[0]
        claim = self._claim(member, min(member.room, self._most(ready)))
        self._wait_over = over = self._broker.loop.create_future()
        try:
            await self._hand(member, await self._broker.claim(claim, LONGEST_WAIT, over))
            if not over.done() and self._members and self._members[0] is member:
                self._members.rotate(-1)
        finally:
            self._wait_over = self._waits_for = None
            self._at_rest.set()

    def _claim(self, member: Subscription, most: int) -> Claim:
        most_bytes = min(MOST_BYTES, self._memory.each)
        return Claim(queue=self._queue, group=self._group, most=most, most_bytes=most_bytes, owner=member.owner)

    async def _handed(self, member: Subscription, handed: Handed) -> Exception | None:
        """One that cannot be handed over is no reason to keep the others from theirs."""
        try:
            await self._hand(member, handed)
        except Exception as problem:
            return problem
        return None

    async def _hand(self, member: Subscription, handed: Handed) -> None:
        claimed = handed.claimed
        if claimed.empty is EmptyReason.DRAINING:
            raise Draining
        if not claimed.grants:
            return
        try:
            size = member.deliver(handed)
        except Exception:
            self.come_last(member)
            await self._take_back(claimed.lease_id)
            raise
        if size is None:
            await self._take_back(claimed.lease_id)
        else:
            self._size = max(1.0, size / claimed.count, 0.5 * self._size)

    async def _take_back(self, lease_id: str) -> None:
        try:
            await self._broker.send(giving_back([lease_id]))
        except AckwiseError as problem:
            log.warning("queue %s: a claim comes back when its lease runs out: %s", self._queue, problem)
