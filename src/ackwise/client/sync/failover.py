# Generated from ../aio/failover.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Failover between several servers of one store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ackwise.client.http_adapters.reply import Broken, HTTPAdapter, Reply, Unsent
from ackwise.client.resilience import FAILING_STATUSES, PROBE_SECONDS, CircuitBreaker, Resilience
from ackwise.client.server_url import code_of
from ackwise.core.errors import CircuitOpen, Draining, StoreLocked, StoreUnavailable

_NOTHING_DONE = (Draining.code, StoreUnavailable.code, StoreLocked.code)
"""Error codes of a server that did nothing with the request: the next server may get it at once."""


class Failover:
    """HTTP adapter over several servers: stays with the server that works.

    If a server cannot be reached, the request goes to the next one. After a lost answer, the next request goes to the
    next server. Each server has a circuit breaker.
    """

    def __init__(
        self,
        adapters: Sequence[tuple[str, HTTPAdapter]],
        resilience: Resilience,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._adapters = [(base, adapter, CircuitBreaker(resilience, clock)) for base, adapter in adapters]
        self._clock = clock
        self._first = 0

    def request(self, method: str, path: str, body: bytes, timeout: float) -> Reply:
        unsent: Unsent | None = None
        refused: Reply | None = None
        first = self._first
        for step in range(len(self._adapters)):
            at = (first + step) % len(self._adapters)
            base, adapter, breaker = self._adapters[at]
            if not breaker.allows() or (breaker.needs_probe and not self._works(adapter, breaker)):
                continue
            began = self._clock()
            try:
                reply = adapter.request(method, path, body, timeout)
            except Unsent as problem:
                breaker.failed(began)
                unsent = Unsent(f"{base}: {problem}")
                continue
            except Broken:
                breaker.failed(began)
                self._first = at + 1
                raise
            if reply.status not in FAILING_STATUSES:
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
        names = ", ".join(base for base, _, _ in self._adapters)
        raise CircuitOpen(f"circuit breaker is open: {names} failed too often in a row; nothing was sent")

    def _works(self, adapter: HTTPAdapter, breaker: CircuitBreaker) -> bool:
        """Probe a server whose breaker was open. A normal call might wait much longer for its answer."""
        try:
            works = (adapter.request("GET", "/v1", b"", PROBE_SECONDS)).status not in FAILING_STATUSES
        except (Unsent, Broken):
            works = False
        if works:
            breaker.worked()
        else:
            breaker.probe_failed()
        return works

    def broadcast(self, path: str, body: bytes, timeout: float) -> None:
        for _, adapter, breaker in self._adapters:
            if not breaker.open:
                adapter.broadcast(path, body, timeout)

    def sleep(self, seconds: float) -> None:
        self._adapters[0][1].sleep(seconds)

    def close(self) -> None:
        for _, adapter, _ in self._adapters:
            adapter.close()
