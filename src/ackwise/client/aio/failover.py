"""Several servers of one store, as if they were one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ackwise.client.breaking import FAILING, PROBE_WITHIN, Breaker, Resilience
from ackwise.client.servers import code_of
from ackwise.client.wires.reply import AsyncWire, Broken, Reply, Unsent
from ackwise.core.errors import CircuitOpen, Draining, StoreLocked, StoreUnavailable

_NOTHING_DONE = (Draining.code, StoreUnavailable.code, StoreLocked.code)
"""Refusals of a server that did nothing: another one may be asked at once."""


class AsyncFailover:
    """Stays with the server that works. One that was not reached is passed over at once; one that failed in the middle
    is not asked next time; one that fails again and again is left alone for a while."""

    def __init__(
        self,
        wires: Sequence[tuple[str, AsyncWire]],
        resilience: Resilience,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wires = [(base, wire, Breaker(resilience, clock)) for base, wire in wires]
        self._clock = clock
        self._first = 0

    async def request(self, method: str, path: str, body: bytes, timeout: float) -> Reply:
        unsent: Unsent | None = None
        refused: Reply | None = None
        first = self._first
        for step in range(len(self._wires)):
            at = (first + step) % len(self._wires)
            base, wire, breaker = self._wires[at]
            if not breaker.allows() or (breaker.on_trial and not await self._works(wire, breaker)):
                continue
            began = self._clock()
            try:
                reply = await wire.request(method, path, body, timeout)
            except Unsent as problem:
                breaker.failed(began)
                unsent = Unsent(f"{base}: {problem}")
                continue
            except Broken:
                breaker.failed(began)
                self._first = at + 1
                raise
            if reply.status not in FAILING:
                breaker.worked()
                self._first = at
                return reply
            breaker.failed(began)
            self._first = at + 1
            if code_of(reply) not in _NOTHING_DONE:
                return reply
            refused = reply
        if refused is not None:
            return refused
        if unsent is not None:
            raise unsent
        names = ", ".join(base for base, _, _ in self._wires)
        raise CircuitOpen(f"circuit breaker is open: {names} failed too often in a row; nothing was sent")

    async def _works(self, wire: AsyncWire, breaker: Breaker) -> bool:
        """Ask a server that rested whether it works again: any other call might wait long for its answer."""
        try:
            works = (await wire.request("GET", "/v1", b"", PROBE_WITHIN)).status not in FAILING
        except (Unsent, Broken):
            works = False
        if works:
            breaker.worked()
        else:
            breaker.failed_trial()
        return works

    async def tell(self, path: str, body: bytes, timeout: float) -> None:
        for _, wire, breaker in self._wires:
            if not breaker.open:
                await wire.tell(path, body, timeout)

    async def sleep(self, seconds: float) -> None:
        await self._wires[0][1].sleep(seconds)

    async def close(self) -> None:
        for _, wire, _ in self._wires:
            await wire.close()
