"""Dispatcher: claims messages for the subscriptions of one queue and group in fair turns."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ackwise.broker import AsyncBroker
from ackwise.core.answers import Handed
from ackwise.core.commands import Claim, release_command
from ackwise.core.errors import AckwiseError, Draining, UnknownQueue
from ackwise.core.lane_selection import EmptyReason
from ackwise.protocols.answer_memory import AnswerMemory

if TYPE_CHECKING:
    from ackwise.protocols.amps.subscription import QueueSubscription

log = logging.getLogger("ackwise.amps")

LONGEST_WAIT = 600.0
MOST_BYTES = 4 << 20
"""Bytes that one claim takes for all subscribers together."""
MOST = 256
FIRST_SIZE = 1048576.0
"""Assumed size of a message before the first delivery."""
PAUSE = 0.5


class Dispatcher:
    """Claims messages for its subscriptions in rounds. While the queue is empty, one claim waits."""

    def __init__(
        self, broker: AsyncBroker, queue: str, group: str, on_empty: Callable[[], object], memory: AnswerMemory
    ) -> None:
        self._broker, self._queue, self._group, self._on_empty = broker, queue, group, on_empty
        self._memory = memory
        self._members: deque[QueueSubscription] = deque()
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        """Set while no claim is running, except one that waits and has not been told to stop."""
        self._wait_over: asyncio.Future[None] | None = None
        self._waits_for: QueueSubscription | None = None
        self._each = 1
        self._size = FIRST_SIZE
        self._task: asyncio.Task[None] | None = None

    def join(self, member: QueueSubscription) -> None:
        self._members.append(member)
        if self._task is None or self._task.done():
            self._task = self._broker.loop.create_task(self._run())
        self.wake()

    async def leave(self, member: QueueSubscription) -> None:
        """Removes a subscription. After the return, the dispatcher claims nothing more for it."""
        if member in self._members:
            self._members.remove(member)
            if not self._members:
                self._on_empty()
        self.wake()
        await self._idle.wait()

    def wake(self) -> None:
        """Tells the dispatcher that the room of a subscription may have changed."""
        self._changed.set()
        if self._waits_for is not None and not self._waits_for.room:
            self._stop_waiting()

    async def yield_turn(self, member: QueueSubscription) -> None:
        """Moves a subscription behind the others before it returns a message. Waits for running claims."""
        self.move_last(member)
        await self._idle.wait()

    def move_last(self, member: QueueSubscription) -> None:
        """Moves a subscription behind the others. Stops its waiting claim if another subscription has room."""
        if member in self._members:
            self._members.remove(member)
            self._members.append(member)
        if self._waits_for is member and any(other.room for other in self._members if other is not member):
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        """Stops the waiting claim. A turn may be running it, so the dispatcher is busy until the claim returns."""
        if self._wait_over is not None and not self._wait_over.done():
            self._idle.clear()
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
                log.log(level, "queue %s: claiming for AMPS subscribers failed, will retry: %r", self._queue, problem)
                await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(PAUSE)

    async def _serve(self) -> None:
        self._changed.clear()
        if not (ready := self._ready()):
            await self._changed.wait()
        elif not await self._round(ready):
            await self._wait()

    def _ready(self) -> list[QueueSubscription]:
        return [] if self._memory.full else [member for member in self._members if member.room]

    async def _round(self, ready: list[QueueSubscription]) -> bool:
        """Claims once for each subscription, in one turn. Returns whether the queue had messages."""
        most = self._most(ready)
        claims = [self._claim(member, min(member.room, most)) for member in ready]
        self._idle.clear()
        try:
            batches = await self._broker.claim_each(claims)
            problems = [await self._try_deliver(member, batch) for member, batch in zip(ready, batches, strict=True)]
            if (problem := next(filter(None, problems), None)) is not None:
                raise problem
        finally:
            self._idle.set()
        full = all(batch.claimed.count == claim.most for claim, batch in zip(claims, batches, strict=True))
        self._each = min(MOST, 2 * self._each) if full else 1
        claimed_any = any(batch.claimed.grants for batch in batches)
        if claimed_any:
            self._members.rotate(-1)
        return claimed_any

    def _most(self, ready: list[QueueSubscription]) -> int:
        """Messages per claim. Starts small, so that all subscriptions get a part, and doubles while claims are full."""
        most = min(MOST, max(1, int(MOST_BYTES / self._size)))
        if len(ready) == 1:
            return most
        return min(most, self._each, max(1, min(member.backlog for member in ready) // 4))

    async def _wait(self) -> None:
        """Parks one claim for the subscription whose turn is next. The next round serves the others."""
        if not (ready := self._ready()):
            return
        self._waits_for = member = ready[0]
        claim = self._claim(member, min(member.room, self._most(ready)))
        self._wait_over = over = self._broker.loop.create_future()
        try:
            await self._deliver(member, await self._broker.claim(claim, LONGEST_WAIT, over))
            if not over.done() and self._members and self._members[0] is member:
                self._members.rotate(-1)
        finally:
            self._wait_over = self._waits_for = None
            self._idle.set()

    def _claim(self, member: QueueSubscription, most: int) -> Claim:
        most_bytes = min(MOST_BYTES, self._memory.each)
        return Claim(queue=self._queue, group=self._group, most=most, most_bytes=most_bytes, owner=member.owner)

    async def _try_deliver(self, member: QueueSubscription, handed: Handed) -> Exception | None:
        """Delivers and returns the error, so that one failure does not stop deliveries to the others."""
        try:
            await self._deliver(member, handed)
        except Exception as problem:
            return problem
        return None

    async def _deliver(self, member: QueueSubscription, handed: Handed) -> None:
        """Sends claimed messages to the subscription. Releases them if its client has disconnected."""
        claimed = handed.claimed
        if claimed.empty is EmptyReason.DRAINING:
            raise Draining
        if not claimed.grants:
            return
        try:
            size = member.deliver(handed)
        except Exception:
            self.move_last(member)
            await self._release(claimed.lease_id)
            raise
        if size is None:
            await self._release(claimed.lease_id)
        else:
            self._size = max(1.0, size / claimed.count, 0.5 * self._size)

    async def _release(self, lease_id: str) -> None:
        try:
            await self._broker.send(release_command([lease_id]))
        except AckwiseError as problem:
            log.warning("queue %s: a claim could not be released; its lease will expire: %s", self._queue, problem)
