"""Retry policy and circuit breaker."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ackwise.client.http_adapters.reply import Broken, Reply, Unsent
from ackwise.client.server_url import code_of, error_of
from ackwise.core.errors import (
    AckwiseError,
    AnswersFull,
    BadStoreURL,
    Draining,
    OutcomeUnknown,
    Overloaded,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeStore,
)
from ackwise.core.validation import count
from ackwise.wire.timestamps import seconds

PATIENCE = 15.0
"""Seconds for all tries of one call: long enough for a server to restart."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
MIN_JITTER = 0.5
"""Jitter: a pause is a random part of its full length, at least this part."""
_BUSY_STATUSES = (429, 503)
_TRANSIENT_CODES = frozenset(
    {
        Overloaded.code,
        AnswersFull.code,
        Draining.code,
        StoreUnavailable.code,
        StoreLocked.code,
        OutcomeUnknown.code,
        None,
    }
)
"""Error codes after which a retry may succeed. None means a body without a code, for example from a proxy."""

RetryPauses = tuple[float, ...]
_PERMANENT = (StoreCorrupt, SchemaTooNew, StoreReadOnly, UnsafeStore, BadStoreURL)


def is_transient(problem: Exception) -> bool:
    """Whether a retry may succeed: the server is busy, restarts or cannot be reached."""
    return isinstance(problem, StoreError | Overloaded | Draining) and not isinstance(problem, _PERMANENT)


class CallRetries:
    """Retry state of one call: decides after each failed try whether and when to try again.

    A `repeatable` call is retried even if the server may have processed an earlier try. A call that `reads` changes
    nothing on the server.

    Without `pauses` the retries end after `patience` seconds. With `pauses` they end after that many pauses. A
    Retry-After header that reaches past `patience` ends them at once.
    """

    def __init__(
        self, base: str, patience: float, *, repeatable: bool, reads: bool = False, pauses: RetryPauses | None = None
    ) -> None:
        self._base, self._repeatable, self._reads, self._pauses = base, repeatable, reads, pauses
        self._end = time.monotonic() + patience
        self._count = 0
        self.repeated = False
        """Whether the server may have processed the call in a try before the last one."""

    def pause_after_unsent(self, problem: Unsent) -> float:
        """Seconds to wait after a request that was not sent. Raises the final error when no try is left."""
        pause = self._next_pause(None)
        if pause is not None:
            return pause
        if self.repeated:
            raise self.unknown(problem)
        raise StoreUnavailable(f"no server answers at {self._base}: {problem}; nothing was changed")

    def final_error(self, problem: AckwiseError) -> AckwiseError:
        """The error to raise when no further try is allowed: `problem`, or `OutcomeUnknown` after a lost answer."""
        return self.unknown(problem) if self.repeated else problem

    def pause_after_broken(self, problem: Broken) -> float:
        """Seconds to wait after a request without an answer. Raises the final error when no try is left."""
        self.repeated = True
        pause = self._next_pause(None) if self._repeatable else None
        if pause is None:
            raise self.unknown(problem)
        return pause

    def pause_after_refusal(self, reply: Reply) -> float:
        """Seconds to wait after an error answer. Raises the server's error when a retry cannot help."""
        pause = None
        code = code_of(reply)
        if reply.status in _BUSY_STATUSES and code in _TRANSIENT_CODES:
            # A proxy that answers 503 does not say whether the server received the request.
            unknown = code in (OutcomeUnknown.code, None)
            self.repeated = self.repeated or unknown
            pause = self._next_pause(reply.retry_after) if self._repeatable or not unknown else None
        if pause is None:
            raise error_of(reply, self._base)
        return pause

    def unknown(self, problem: Exception | str) -> StoreError:
        """The error for a lost answer: `OutcomeUnknown`, or `StoreUnavailable` if the call only reads."""
        if self._reads:
            return StoreUnavailable(f"{self._base} did not answer: {problem}")
        return OutcomeUnknown(f"the call to {self._base} was not answered ({problem}): it may or may not have happened")

    def _next_pause(self, retry_after: float | None) -> float | None:
        """Exponential backoff with jitter, at least `retry_after` seconds. None when no try is left."""
        if self._pauses is not None and self._count >= len(self._pauses):
            return None
        full = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._count) if self._pauses is None else self._pauses[self._count]
        pause = full * random.uniform(MIN_JITTER, 1.0)  # noqa: S311
        self._count += 1
        bounded = self._pauses is None or (retry_after or 0.0) > pause
        pause = max(pause, retry_after or 0.0)
        return pause if not bounded or time.monotonic() + pause < self._end else None


PROBE_SECONDS = 5.0
"""Seconds that a failing server has to answer the probe request."""
FAILING_STATUSES = (502, 503, 504)
"""HTTP statuses that count as a failure of the server, like no answer."""


@dataclass(frozen=True)
class Resilience:
    """Retry and circuit-breaker settings of a client.

    `pauses` are the seconds between the tries of one call. After `failures` failed calls in a row the client does not
    call a server for `rest` seconds.
    """

    pauses: RetryPauses = (1.0, 2.0, 4.0)
    failures: int = 5
    rest: float = 60.0

    def __post_init__(self) -> None:
        for pause in self.pauses:
            seconds(pause, "a pause")
        count(self.failures, "failures")
        seconds(self.rest, "rest")


class CircuitBreaker:
    """Circuit breaker: stops calling a failing server for a while.

    The breaker opens after `failures` failures in a row. After `rest` seconds it lets one probe through. Concurrent
    failures count as one failure: one short outage fails many calls at once.
    """

    def __init__(self, resilience: Resilience, clock: Callable[[], float] = time.monotonic) -> None:
        self._resilience, self._clock = resilience, clock
        self._lock = threading.Lock()
        self._failures = 0
        self._failed_at = float("-inf")
        self._open_until = 0.0

    @property
    def open(self) -> bool:
        return self.needs_probe and self._clock() < self._open_until

    @property
    def needs_probe(self) -> bool:
        """Whether the server must answer a probe before it gets a call."""
        return self._failures >= self._resilience.failures

    def allows(self) -> bool:
        """Whether the caller may call the server now. Of several callers only one gets True for the probe."""
        with self._lock:
            if not self.needs_probe:
                return True
            if self._clock() < self._open_until:
                return False
            # This caller probes. Other callers wait for its result, or until the probe has timed out.
            self._open_until = self._clock() + PROBE_SECONDS
            return True

    def worked(self) -> None:
        """Record a success: the breaker closes."""
        with self._lock:
            self._failures = 0

    def failed(self, began: float) -> None:
        """Record the failure of a call that started at `began`."""
        with self._lock:
            if self.needs_probe or began < self._failed_at + self._min_gap():
                return
            self._failures += 1
            self._failed_at = self._clock()
            self._open_until = self._failed_at + self._resilience.rest

    def probe_failed(self) -> None:
        """Record a failed probe: the breaker stays open for another `rest` seconds."""
        with self._lock:
            self._open_until = self._clock() + self._resilience.rest

    def _min_gap(self) -> float:
        """Seconds after a failure in which further failures count as the same one: the shortest retry pause."""
        pauses = self._resilience.pauses
        return MIN_JITTER * pauses[min(self._failures, len(pauses)) - 1] if self._failures and pauses else 0.0
