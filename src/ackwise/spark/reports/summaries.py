"""What both engines of the reports share: outcomes, quantiles and the data of a page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ackwise.core.errors import BadInput
from ackwise.core.validation import Seconds
from ackwise.wire.timestamps import seconds

Row = dict[str, Any]

OUTCOMES = ("acked", "retried", "dead", "released", "lease_expired", "expired")
FAILED = ("retried", "dead", "lease_expired")
REDELIVERED = ("retried", "released", "lease_expired")
QUANTILES = {"latency_p50": 0.5, "latency_p95": 0.95, "latency_p99": 0.99}
MINUTE = 60
RECENT_MINUTES = 5

STEPS = (1, 10, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 86_400, 7 * 86_400)
MOST_STEPS = 48
MOST_ERRORS = 200
LONGEST_EXAMPLE = 2000
_SEEN = ("first_at", "last_at")


def window_seconds(window: Seconds) -> int:
    """Seconds of a window, which must be whole minutes, as in the ledger."""
    length = seconds(window, "window")
    if length < MINUTE or length % MINUTE:
        raise BadInput(f"window is {length:g} seconds; it must be whole minutes, because the ledger counts in minutes")
    return round(length)


def step_for(seconds: float) -> int:
    """Seconds of a time step: the smallest that gives a range fewer than `MOST_STEPS` steps."""
    return next((step for step in STEPS if seconds / step < MOST_STEPS), STEPS[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSummary:
    """Data of the report's page."""

    queue: str | None
    group: str | None
    made_at: datetime
    errors: list[Row]
    """Rows of the report, each with an `example`: the newest dead letter of its kind."""
    reasons: list[Row]
    error_types: list[Row]
    times: list[Row]
    step: int
    """Seconds between two `at` of the times."""

    @property
    def total(self) -> int:
        return sum(row["count"] for row in self.reasons)


def summed(cells: list[Row], *keys: str) -> list[Row]:
    """Counts by queue, group and these keys, the most frequent first."""
    sums: dict[tuple[Any, ...], Row] = {}
    for cell in cells:
        key = {name: cell[name] for name in ("queue", "group", *keys)}
        row = sums.setdefault((*key.values(),), {**key, "count": 0, **{name: cell[name] for name in _SEEN}})
        row["count"] += cell["count"]
        row["first_at"], row["last_at"] = min(row["first_at"], cell["first_at"]), max(row["last_at"], cell["last_at"])
    return sorted(sums.values(), key=lambda row: -row["count"])
