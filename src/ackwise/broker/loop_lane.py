"""The turns of one shard on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ackwise.broker.pending import Pending, Slot, deal, interrupted
from ackwise.broker.waiting import Waiting
from ackwise.core.commands import Command
from ackwise.store.port import Prepared

if TYPE_CHECKING:
    from ackwise.broker.loop import AsyncBroker


class Lane:
    """The turns of one shard, one at a time."""

    def __init__(self, broker: AsyncBroker, shard: int) -> None:
        self._broker, self._shard = broker, shard
        self._pending = Pending()
        self._running = False

    async def submit(self, commands: Sequence[Command]) -> Slot:
        loop = self._broker.loop
        done: asyncio.Future[None] = loop.create_future()
        slot = Slot(commands, lambda: None if done.done() else done.set_result(None))
        self._pending.add(slot)
        if not self._running:
            self._running = True
            self._broker.keep(loop.create_task(self._run()))
        try:
            await done
        except asyncio.CancelledError:
            # Its commands stay in the turn, which may be under way; what it would have been handed goes back.
            self._broker.keep(loop.create_task(self._broker.give_back(slot, taken_over(slot, loop))))
            raise
        return slot

    async def _run(self) -> None:
        try:
            while len(self._pending):
                # Let everybody who is ready to submit do so before the turn is formed.
                await asyncio.sleep(0)
                await self._turn(self._pending.take())
        finally:
            self._running = False

    async def _turn(self, taken: list[Slot]) -> None:
        broker = self._broker
        riders: list[Waiting] = []
        prepared: Prepared | None = None
        try:
            broker.waiters.ride((c for slot in taken for c in slot.commands), riders)
            slots = [*taken, *riders]
            commands = [c for slot in slots for c in slot.commands]
            started = time.perf_counter()
            if broker.store.local and not broker.store.busy:
                prepared = broker.store.prepare(commands, self._shard)
                self._pending.learn(len(commands), started)
            else:
                prepared = await broker.prepare_in_thread(commands, self._shard)
            if prepared.light:
                prepared.commit()
            else:
                await broker.commit_in_thread(prepared)
            deal(slots, prepared.results)
            broker.bells.ring(prepared.woken)
            for slot in (*taken, *broker.waiters.served(prepared.woken, riders)):
                slot.finish()
        except BaseException as problem:
            for slot in (*taken, *(rider for rider in riders if not rider.parked)):
                if slot.results is None:
                    slot.error = problem if isinstance(problem, Exception) else interrupted()
                slot.finish()
            if prepared is not None:
                prepared.abandon()
            if not isinstance(problem, Exception):
                raise


def taken_over(slot: Slot, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    """Done when the slot is finished; whoever waited for that before does no longer."""
    later: asyncio.Future[None] = loop.create_future()
    if slot.finished:
        later.set_result(None)
    else:
        slot.wake = lambda: later.set_result(None)
    return later
