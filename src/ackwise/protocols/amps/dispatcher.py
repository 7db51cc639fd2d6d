"""Dispatcher: claims messages for the subscriptions of one queue and group in fair turns.

While a subscription with a filter has room, the dispatcher first looks for the messages that each subscription wants.
Then the claim of a subscription names them. Subscriptions without a filter want all messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ackwise.broker import AsyncBroker
from ackwise.core.answers import Claimed, Handed
from ackwise.core.commands import Claim, release_command
from ackwise.core.errors import AckwiseError, Draining, UnknownGroup, UnknownQueue
from ackwise.core.lane_range import LaneRange
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.validation import MICROS
from ackwise.protocols.amps.lookahead import LOOK_EVERY, Lookaheads
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
        self._lookaheads = Lookaheads(broker, queue, group)
        self._listens = False
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
        self._members_changed()
        if self._task is None or self._task.done():
            self._task = self._broker.loop.create_task(self._run())
        self.wake()

    async def leave(self, member: QueueSubscription) -> None:
        """Removes a subscription. After the return, the dispatcher claims nothing more for it."""
        if member in self._members:
            self._members.remove(member)
            self._members_changed()
            if not self._members:
                self._on_empty()
        self.wake()
        await self._idle.wait()

    def _members_changed(self) -> None:
        """Follow the commits to the queue while a subscription has a filter: no parked claim waits for its messages."""
        self._lookaheads.keep(self._members)
        listens = any(member.content_filter is not None for member in self._members)
        if listens and not self._listens:
            self._broker.listeners.add(self._queue, self._new_messages)
        elif self._listens and not listens:
            self._broker.listeners.remove(self._queue, self._new_messages)
        self._listens = listens

    def _new_messages(self) -> None:
        self._lookaheads.version += 1
        self._changed.set()

    def wake(self) -> None:
        """Tells the dispatcher that the room of a subscription may have changed."""
        self._changed.set()
        filtered = self._listens and _any_filtered(self._ready())
        if self._waits_for is not None and (filtered or not self._waits_for.room):
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
        elif _any_filtered(ready):
            if not await self._filtered_round(ready):
                await self._wait_for_commit()
        elif not await self._round(ready):
            await self._wait()

    def _ready(self) -> list[QueueSubscription]:
        return [] if self._memory.full else [member for member in self._members if member.room]

    async def _round(self, ready: list[QueueSubscription]) -> bool:
        """Claims once for each subscription, in one turn. Returns whether the queue had messages."""
        most = self._most(ready)
        batches = await self._claim_each([(member, self._claim(member, min(member.room, most))) for member in ready])
        return any(batch.claimed.grants for batch in batches)

    async def _claim_each(self, claims: list[tuple[QueueSubscription, Claim]]) -> list[Handed]:
        """Runs claims in one turn and delivers their messages. The caller has not waited since it built the claims."""
        self._idle.clear()
        try:
            batches = await self._broker.claim_each([claim for _, claim in claims])
            problems = [
                await self._try_deliver(member, batch) for (member, _), batch in zip(claims, batches, strict=True)
            ]
            if (problem := next(filter(None, problems), None)) is not None:
                raise problem
        finally:
            self._idle.set()
        full = all(batch.claimed.count == claim.most for (_, claim), batch in zip(claims, batches, strict=True))
        self._each = min(MOST, 2 * self._each) if full else 1
        if any(batch.claimed.grants for batch in batches):
            self._members.rotate(-1)
        return batches

    async def _filtered_round(self, ready: list[QueueSubscription]) -> bool:
        """Looks for wanted messages and claims for each subscription. Returns whether the next round may find more."""
        try:
            more = await self._lookaheads.look(ready)
        except UnknownGroup:
            # A claim creates the group. This one names no message, so it takes none.
            await self._broker.send(Claim(queue=self._queue, group=self._group, only=()))
            return True
        claims = self._named_claims(self._ready())  # a subscription may have left meanwhile
        if not claims:
            return more
        answers: list[Claimed | None] = [None] * len(claims)
        try:
            answers = [batch.claimed for batch in await self._claim_each(claims)]
        finally:
            for (member, claim), answer in zip(claims, answers, strict=True):
                self._put_back(member, claim, answer)
        return more or any(answer.grants or answer.gone for answer in answers if answer is not None)

    def _named_claims(self, ready: list[QueueSubscription]) -> list[tuple[QueueSubscription, Claim]]:
        """One claim for each subscription that wants messages. The claim names them."""
        claims: list[tuple[QueueSubscription, Claim]] = []
        most = self._most(ready) if ready else 1
        for member in ready:
            if only := self._lookaheads.of(member).take(min(member.room, most)):
                claims.append((member, self._claim(member, sum(named.size for named in only), only)))
        return claims

    def _put_back(self, member: QueueSubscription, claim: Claim, answer: Claimed | None) -> None:
        """Keeps wanted messages that a claim did not get, for a later claim."""
        if claim.only is not None:
            self._lookaheads.of(member).put_back(claim.only, answer)

    async def _wait_for_commit(self) -> None:
        """Waits for a commit to the queue, for room, or until a message is due."""
        seconds, until = LOOK_EVERY, self._lookaheads.until
        if until is not None:
            seconds = min(seconds, max(0.001, (until - self._broker.now()) / MICROS))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

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

    def _claim(self, member: QueueSubscription, most: int, only: tuple[LaneRange, ...] | None = None) -> Claim:
        most_bytes = min(MOST_BYTES, self._memory.each)
        return Claim(
            queue=self._queue, group=self._group, most=most, most_bytes=most_bytes, owner=member.owner, only=only
        )

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


def _any_filtered(members: Iterable[QueueSubscription]) -> bool:
    return any(member.content_filter is not None for member in members)
