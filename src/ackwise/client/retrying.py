"""Whether a call is tried again, and when."""

from __future__ import annotations

import random
import time

from ackwise.client.servers import code_of, error_of
from ackwise.client.wires.reply import Broken, Reply, Unsent
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

PATIENCE = 15.0
"""How long a call goes on trying: long enough for a server to start again."""
_FIRST, _LONGEST = 0.05, 2.0
SHORTEST = 0.5
"""Of a full pause: how long it is at least."""
_LATER = (429, 503)
_PASSES = frozenset(
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
"""Codes of troubles that time may heal; None is somebody before the server, such as a proxy."""


Pauses = tuple[float, ...]


_LASTING = (StoreCorrupt, SchemaTooNew, StoreReadOnly, UnsafeStore, BadStoreURL)


def passes(problem: Exception) -> bool:
    """Whether time may heal it: a server that is busy, restarts or cannot be reached. Nonsense stays nonsense."""
    return isinstance(problem, StoreError | Overloaded | Draining) and not isinstance(problem, _LASTING)


class Tries:
    """The tries of one call. `again`: it may be repeated even if the server had it; `reads`: it changes nothing.

    They end when `patience` is over, or with `pauses` after so many, whatever time that takes; and at once when a
    server wants to be left alone for longer than `patience`.
    """

    def __init__(
        self, base: str, patience: float, *, again: bool, reads: bool = False, pauses: Pauses | None = None
    ) -> None:
        self._base, self._again, self._reads, self._pauses = base, again, reads, pauses
        self._end = time.monotonic() + patience
        self._count = 0
        self.repeated = False
        """Whether the server may have had the call before the last try."""

    def unsent(self, problem: Unsent) -> float:
        """How long to wait before the next try; what is raised instead says that there is none."""
        pause = self._pause(None)
        if pause is not None:
            return pause
        if self.repeated:
            raise self.unknown(problem)
        raise StoreUnavailable(f"no server answers at {self._base}: {problem}; nothing was changed")

    def shut(self, problem: AckwiseError) -> AckwiseError:
        """What to raise when nobody may be asked any more."""
        return self.unknown(problem) if self.repeated else problem

    def broken(self, problem: Broken) -> float:
        self.repeated = True
        pause = self._pause(None) if self._again else None
        if pause is None:
            raise self.unknown(problem)
        return pause

    def refused(self, reply: Reply) -> float:
        pause = None
        code = code_of(reply)
        if reply.status in _LATER and code in _PASSES:
            # A proxy that answers for the server does not say whether it had asked it.
            unknown = code in (OutcomeUnknown.code, None)
            self.repeated = self.repeated or unknown
            pause = self._pause(reply.retry_after) if self._again or not unknown else None
        if pause is None:
            raise error_of(reply, self._base)
        return pause

    def unknown(self, problem: Exception | str) -> StoreError:
        if self._reads:
            return StoreUnavailable(f"{self._base} did not answer: {problem}")
        return OutcomeUnknown(f"the call to {self._base} was not answered ({problem}): it may or may not have happened")

    def _pause(self, asked: float | None) -> float | None:
        """Longer each time, never the same for all who wait, and not before the server wants; None: time is up."""
        if self._pauses is not None and self._count >= len(self._pauses):
            return None
        full = min(_LONGEST, _FIRST * 2**self._count) if self._pauses is None else self._pauses[self._count]
        pause = full * random.uniform(SHORTEST, 1.0)  # noqa: S311
        self._count += 1
        bounded = self._pauses is None or (asked or 0.0) > pause
        pause = max(pause, asked or 0.0)
        return pause if not bounded or time.monotonic() + pause < self._end else None
