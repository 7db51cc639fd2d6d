"""What a handler raises to choose the outcome of its message; anything else it raises is a retry."""

from __future__ import annotations

from ackwise.core.limits import Seconds


class Retry(Exception):
    """Try this message again, after `delay` seconds or the queue's backoff; it spends a failure."""

    def __init__(self, *, delay: Seconds | None = None, error: str | BaseException | None = None) -> None:
        super().__init__("retry" if error is None else str(error))
        self.delay = delay
        self.error = error


class Reject(Exception):
    """This message can never succeed: dead-letter it now."""

    def __init__(self, reason: str | BaseException = "rejected") -> None:
        super().__init__(str(reason))
        self.reason = reason
