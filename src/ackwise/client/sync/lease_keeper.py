# Generated from ../aio/lease_keeper.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Lease keeper: extends leases while work runs under them."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from ackwise.client.concurrency.threads import Signal, Worker
from ackwise.client.kept_lease import HALF, KeptLease, is_due
from ackwise.client.sync.lease import Lease
from ackwise.client.transport import Transport
from ackwise.core.errors import AckwiseError, LeaseLost
from ackwise.core.validation import MICROS

log = logging.getLogger("ackwise.client")

CHECKS_UNTIL_DUE = 4
"""Checks of a lease before it is due."""
LONGEST_PAUSE, SHORTEST_PAUSE = 1.0, 0.01
"""Most and least seconds between two checks."""
SHORTEST_PATIENCE = 0.5
"""Least seconds to wait for the answer to an extension. A longer lease waits a quarter of its duration."""
CLOSE_SECONDS = 0.5
"""Most seconds that `close` waits for extensions in flight."""

L = TypeVar("L", bound=KeptLease)
L_in = TypeVar("L_in", contravariant=True)
OnLost = Callable[[L], None]


class Extender(Protocol[L_in]):
    """Extends leases in one request. Returns the error of each lease, or None if the lease is extended."""

    def __call__(self, leases: Sequence[L_in], /) -> Sequence[Exception | None]: ...


def extend_all(transport: Transport, leases: Sequence[Lease]) -> list[AckwiseError | None]:
    """Extend leases in one request. Returns the error of each lease, or None if the lease is extended."""
    problems: list[AckwiseError | None] = []
    chosen = [lease.chosen for lease in leases]
    answers = transport.send_all([lease.extension() for lease in leases])
    for lease, answer, before in zip(leases, answers, chosen, strict=True):
        try:
            lease.note_extension(answer, before)
            problems.append(None)
        except AckwiseError as problem:
            problems.append(problem)
    return problems


def extend_due(transport: Transport, leases: Iterable[Lease]) -> None:
    """Extend the leases that are due, in one request. Raises the first error."""
    now = transport.now()
    due = [lease for lease in leases if is_due(lease, now)]
    for problem in extend_all(transport, due) if due else ():
        if problem is not None:
            raise problem


class _KeptEntry(Generic[L]):
    """State of a kept lease."""

    __slots__ = ("due_at", "extends", "on_lost")

    def __init__(self, on_lost: OnLost[L] | None, extends: bool, due_at: float) -> None:
        self.on_lost, self.extends = on_lost, extends
        self.due_at = due_at
        """When a keeper with `every` extends the lease next, by the monotonic clock."""


class _ExtensionRequest(Generic[L]):
    """An extension in flight. After `overdue_at` the keeper sends the leases again."""

    __slots__ = ("leases", "overdue_at", "worker")

    def __init__(self, leases: Sequence[L], overdue_at: float) -> None:
        self.leases, self.overdue_at = leases, overdue_at
        self.worker: Worker


class LeaseKeeper(Generic[L]):
    """Extends leases in the background.

    The keeper extends a lease when `fraction` of its time is over, or every `every` seconds. Leases that are due at the
    same time share one request. A request that fails or gets no answer is repeated and delays no other lease. A lease
    is lost when the server says so or when its deadline is over: then the keeper drops the lease and calls its
    `on_lost`, on its own task or thread.

    `now` is the clock of the leases.
    """

    def __init__(
        self,
        now: Callable[[], int],
        extend: Extender[L],
        *,
        fraction: float = HALF,
        every: float | None = None,
    ) -> None:
        self._now, self._extend = now, extend
        self._fraction, self._every = fraction, every
        self._kept: dict[L, _KeptEntry[L]] = {}
        self._requests: set[_ExtensionRequest[L]] = set()
        self._guard = threading.Lock()
        self._wake = Signal()
        self._pause = math.inf
        """Seconds that the current wait lasts at most."""
        self._worker: Worker | None = None
        self._closed = False

    def keep(self, lease: L, on_lost: OnLost[L] | None = None, *, extend: bool = True) -> None:
        """Extend the lease until `drop`. With `extend=False`, only report its loss."""
        due_at = 0.0 if self._every is None else time.monotonic() + self._every
        with self._guard:
            if self._closed:
                return
            entry = self._kept[lease] = _KeptEntry(on_lost, extend, due_at)
            if self._worker is None:
                self._worker = Worker(self._run, "ackwise-keep-alive")
            if lease.in_doubt or self._pause_for(lease, entry) < self._pause:
                self._wake.set()

    def drop(self, lease: L) -> None:
        """Stop extending the lease."""
        self._kept.pop(lease, None)

    @contextmanager
    def keeping(self, lease: L, on_lost: OnLost[L] | None = None) -> Iterator[None]:
        """Extend the lease while the block runs."""
        self.keep(lease, on_lost)
        try:
            yield
        finally:
            self.drop(lease)

    def check_soon(self) -> None:
        """Check the leases now, for example because a manual clock was moved."""
        self._wake.set()

    def close(self) -> None:
        """Stop extending. Waits at most `CLOSE_SECONDS` for requests in flight."""
        with self._guard:
            self._closed = True
            self._kept.clear()
        self._wake.set()
        end = time.monotonic() + CLOSE_SECONDS
        if self._worker is not None:
            self._worker.join(CLOSE_SECONDS)
        for request in list(self._requests):
            request.worker.cancel()
            request.worker.join(max(0.0, end - time.monotonic()))

    def _pause_for(self, lease: L, entry: _KeptEntry[L]) -> float:
        """Seconds until this lease needs the next check."""
        if lease.ended:
            return LONGEST_PAUSE
        pause = min(LONGEST_PAUSE, lease.duration / MICROS * self._fraction / CHECKS_UNTIL_DUE)
        if self._every is None:
            return max(SHORTEST_PAUSE, pause)
        return max(min(SHORTEST_PAUSE, self._every), min(pause, entry.due_at - time.monotonic()))

    def _run(self) -> None:
        while not self._closed:
            with self._guard:
                pauses = [self._pause_for(lease, entry) for lease, entry in list(self._kept.items())]
                self._pause = min(pauses, default=math.inf)
            self._wake.wait(None if self._pause == math.inf else self._pause)
            self._wake.clear()
            self._check()

    def _check(self) -> None:
        """Send the extensions that are due, and report the leases whose deadline is over."""
        now, tick = self._now(), time.monotonic()
        in_flight: set[L] = set()
        for request in list(self._requests):
            if request.overdue_at > tick:
                in_flight.update(request.leases)
            else:
                self._requests.discard(request)
                request.worker.cancel()
                self._log_failure(request.leases, "no answer")
        due = []
        for lease, entry in list(self._kept.items()):
            if lease.remaining(now) <= 0 and (not lease.is_ending or (lease.ended and not entry.extends)):
                self._report_lost(lease)
            elif entry.extends and lease not in in_flight and self._is_due(lease, entry, now, tick):
                due.append(lease)
                entry.due_at = tick + (self._every or 0.0)
        if due:
            self._send(due, tick)

    def _is_due(self, lease: L, entry: _KeptEntry[L], now: int, tick: float) -> bool:
        if self._every is None:
            return is_due(lease, now, self._fraction)
        return not lease.ended and (lease.in_doubt or entry.due_at <= tick)

    def _send(self, leases: Sequence[L], tick: float) -> None:
        """Send a request on a task or thread of its own, so that a missing answer delays no other lease."""
        patience = max(SHORTEST_PATIENCE, min(lease.duration for lease in leases) / MICROS / 4)
        request = _ExtensionRequest(leases, tick + patience)
        self._requests.add(request)
        request.worker = Worker(lambda: self._extend_leases(request), "ackwise-extend")

    def _extend_leases(self, request: _ExtensionRequest[L]) -> None:
        problems: Sequence[Exception | None]
        try:
            problems = self._extend(request.leases)
        except Exception as problem:
            problems = [problem] * len(request.leases)
        finally:
            self._requests.discard(request)
        failures = []
        for lease, failure in zip(request.leases, problems, strict=True):
            if isinstance(failure, LeaseLost):
                self._lose(lease)
            elif failure is not None:
                failures.append((lease, failure))
        if failures:
            self._log_failure([lease for lease, _ in failures], failures[0][1])

    def _lose(self, lease: L) -> None:
        if lease.is_ending:
            # The answer to the settlement tells whether the lease was held.
            return
        self._report_lost(lease)

    def _report_lost(self, lease: L) -> None:
        """Forget a lease and tell its owner. An owner that fails must not end the extensions of other leases."""
        entry = self._kept.pop(lease, None)
        if entry is not None and entry.on_lost is not None:
            try:
                entry.on_lost(lease)
            except Exception:
                log.exception("the owner of %r failed when its lease was lost", lease)

    def _log_failure(self, leases: Sequence[L], why: object) -> None:
        kept = [lease for lease in leases if lease in self._kept]
        if kept:
            log.warning("leases not extended: %d, first %r; trying again: %s", len(kept), kept[0], why)
