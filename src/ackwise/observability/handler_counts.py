"""Handler counts: messages, outcomes and times of the handlers of a subscriber app."""

from __future__ import annotations

from ackwise.core.settlement import Outcome, Reject
from ackwise.observability.event_counts import Histogram

HANDLER_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_OUTCOMES = {Outcome.ACK: "acked", Outcome.RETRY: "retried", Outcome.RELEASE: "released", Outcome.REJECT: "dead"}


class HandlerCounts:
    """Counts of one handler. Only the event loop of the app changes them."""

    __slots__ = ("failures", "in_flight", "outcomes", "queue", "redeliveries", "seconds")

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.seconds = Histogram(HANDLER_BOUNDS)
        self.in_flight = self.failures = self.redeliveries = 0
        self.outcomes: dict[str, int] = {}

    def begin(self, attempt: int) -> None:
        self.in_flight += 1
        self.redeliveries += attempt > 1

    def end(self, seconds: float) -> None:
        self.in_flight -= 1
        self.seconds.add(seconds)

    def settles(self, ask: Outcome | BaseException) -> None:
        """Count a settlement that the handler or the app asks for. `Reject` counts as dead, any other exception as
        retried."""
        failed = "dead" if isinstance(ask, Reject) else "retried"
        outcome = _OUTCOMES[ask] if isinstance(ask, Outcome) else failed
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


class AppCounts:
    """Counts of the handlers of an app, by the name of the handler."""

    def __init__(self) -> None:
        self.handlers: dict[str, HandlerCounts] = {}

    def of(self, handler: str, queue: str) -> HandlerCounts:
        return self.handlers.setdefault(handler, HandlerCounts(queue))
