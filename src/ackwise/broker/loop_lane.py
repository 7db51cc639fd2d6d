"""The turns of one shard on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ackwise.broker.pending import Pending, Slot, interrupted
from ackwise.core.commands import Command

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
            await asyncio.shield(done)
        except asyncio.CancelledError:
            # Its commands stay in the turn, which may be under way; what it would have been handed goes back.
            self._broker.keep(loop.create_task(self._broker.give_back(slot, done)))
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
        riders = broker.waiters.riders(c for slot in taken for c in slot.commands)
        slots = taken + riders
        commands = [c for slot in slots for c in slot.commands]
        started = time.perf_counter()
        try:
            if broker.store.local:
                prepared = broker.store.prepare(commands, self._shard)
                self._pending.learn(len(commands), started)
            else:
                prepared = await broker.in_thread(broker.store.prepare, commands, self._shard)
            await broker.in_thread(prepared.commit)
        except BaseException as problem:
            for slot in slots:
                slot.error = problem if isinstance(problem, Exception) else interrupted()
                slot.wake()
            if not isinstance(problem, Exception):
                raise
            return
        at = 0
        for slot in slots:
            slot.results = prepared.results[at : at + len(slot.commands)]
            at += len(slot.commands)
            slot.wake()
        for slot in broker.waiters.woken(prepared.woken, riders) if prepared.woken else ():
            slot.results = []
            slot.wake()
