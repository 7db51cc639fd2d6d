"""What a handler raises, at any depth, to choose the outcome of its message."""

from __future__ import annotations

from ackwise.core import limits
from ackwise.core.limits import Seconds
from ackwise.core.outcomes import Reject, Retry


class Nak(Retry):
    """Try this message again: after `delay` seconds, at once with 0, on the queue's schedule without one."""

    def __init__(self, delay: Seconds | None = None, *, error: str | BaseException | None = None) -> None:
        if delay is not None:
            limits.micros(delay, "delay")
        super().__init__(delay=delay, error=error)


Term = Reject
