"""Maintenance watch: follows Queen's maintenance switches and replays the spool after a maintenance."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from ackwise.broker import AsyncBroker
from ackwise.broker.maintenance import log_failure
from ackwise.core.commands import DrainSpool, SetMaintenance
from ackwise.core.queen_queries import GetMaintenance
from ackwise.core.rows import MaintenanceState

LOOK_EVERY = 1.0
"""Seconds between two reads of the switches. A notification from another server starts a read earlier."""
LEAST_PAUSE = 0.1


class MaintenanceWatch:
    """Follows the switches in the store. Before the first read, each switch may be on."""

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker
        self._state: MaintenanceState | None = None
        self.may_keep_pushes = True
        """False: no push maintenance. True: ask `keeps_pushes`."""
        self.may_stop_pops = True
        """False: no pop maintenance. True: ask `stops_pops`."""
        self._waiting_pops: set[asyncio.Future[None]] = set()
        """Futures of the pops that wait. Each is done when a pop maintenance begins."""
        self._wake: asyncio.Future[None] | None = None
        self._has_news = False
        self._asked = self._applied = 0
        """Number of the newest read, and of the read whose state is in use."""

    def start(self) -> None:
        """Follow the switches until the broker closes."""
        self._broker.on_news.append(self.look_soon)
        self._broker.start_task(self._run())

    @property
    def state(self) -> MaintenanceState | None:
        """The switches at the last read. None before the first read."""
        return self._state

    def look_soon(self) -> None:
        self._has_news = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def keeps_pushes(self) -> bool:
        """Whether pushes wait in the spool: the switch is on, or earlier pushes still wait."""
        state = self._state or await self.refresh()
        return state.push or state.waiting

    async def stops_pops(self) -> bool:
        state = self._state or await self.refresh()
        return state.pop

    @contextmanager
    def waiting_pop(self) -> Iterator[asyncio.Future[None]]:
        """A future that is done when a pop maintenance begins while the block runs."""
        stopped: asyncio.Future[None] = self._broker.loop.create_future()
        self._waiting_pops.add(stopped)
        try:
            yield stopped
        finally:
            self._waiting_pops.discard(stopped)

    async def set(self, command: SetMaintenance) -> MaintenanceState:
        await self._broker.send(command)
        state = await self.refresh(counted=True)
        self.look_soon()
        return state

    async def refresh(self, *, counted: bool = False) -> MaintenanceState:
        """Read the switches. If a read that started later has already ended, the state of this read is not used."""
        self._asked += 1
        number = self._asked
        state = await self._broker.ask(GetMaintenance(counted=counted))
        if number > self._applied:
            self._applied = number
            self._apply(state)
        return state

    def _apply(self, state: MaintenanceState) -> None:
        self._state = state
        self.may_keep_pushes, self.may_stop_pops = state.push or state.waiting, state.pop
        if state.pop:
            for stopped in self._waiting_pops:
                _finish(stopped)

    async def _run(self) -> None:
        while not self._broker.closed:
            self._has_news = False
            try:
                state = await self.refresh()
                if state.waiting and not state.push:
                    await self._drain()
            except Exception as problem:
                if not self._broker.closed:
                    log_failure("the watch of maintenance", problem)
            await self._pause()

    async def _drain(self) -> None:
        """Replay the spool turn by turn. Stops if another server replays the spool."""
        while not self._broker.closed:
            swept = await self._broker.send(DrainSpool())
            # A push may have joined the spool meanwhile, and a switch may have changed.
            state = await self.refresh()
            if state.push or not (state.waiting and swept.done["spool"]):
                return

    async def _pause(self) -> None:
        """Wait until the next read is due. The end of the broker ends the wait. News end it after `LEAST_PAUSE`."""
        if await self._broker.closed_within(LEAST_PAUSE) or self._has_news:
            return
        self._wake = self._broker.loop.create_future()
        timer = self._broker.loop.call_later(LOOK_EVERY - LEAST_PAUSE, _finish, self._wake)
        try:
            await self._wake
        finally:
            timer.cancel()


def _finish(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)
