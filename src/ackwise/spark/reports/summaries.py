"""What both engines of the reports share: outcomes, quantiles, patterns of errors and the data of a page."""

from __future__ import annotations

import re
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


LONGEST = 300

QUOTED = r"""(["'`])(?:(?!\1).)*\1"""
PLACEHOLDERS: tuple[tuple[str, str], ...] = (
    (r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?( ?(Z|[+-]\d\d:?\d\d)\b)?)?", "<time>"),
    (r"\b\d\d:\d\d:\d\d([.,]\d+)?", "<time>"),
    (r"\b0[xX][0-9a-fA-F]+\b", "<hex>"),
    (r"\b(?=[0-9a-fA-F]*\d)(?=\d*[a-fA-F])[0-9a-fA-F]{8,}\b", "<hex>"),
    (r"((?<![\w>)\]-])[-+])?\d+([.,]\d+)*([eE][-+]?\d+\b)?", "<n>"),
    (r"\s+", " "),
)
"""Patterns in order of precedence, each with its placeholder."""

EMAIL = r"[\w.%+-]+@[\w-]+(\.[\w-]+)+"
UUID = r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
_LINE_BREAK = re.compile("\r\n|[\n\x0b\x0c\r\x85\u2028\u2029]")
_EMAIL, _UUID = re.compile(EMAIL, re.ASCII), re.compile(UUID, re.ASCII)
_TEXT = re.compile(rf"(?<!\w){QUOTED}(?!\w)", re.ASCII)
_ONLY_TEXT = re.compile(f"^{QUOTED}$", re.ASCII)
_OTHERS = [(re.compile(pattern, re.ASCII), placeholder) for pattern, placeholder in PLACEHOLDERS]


def normalised_error(error: str) -> str:
    """The error with its variable parts replaced by placeholders, as the expression of the Spark engine does it."""
    lines = [line for line in _LINE_BREAK.split(error) if line.strip(" ")]
    last = error.startswith("Traceback (most recent call last)")
    text = (lines[-1 if last else 0] if lines else "").strip(" ")
    text = _UUID.sub("<uuid>", _EMAIL.sub("<email>", text))
    if not _ONLY_TEXT.search(text):
        text = _TEXT.sub("<text>", text)
    for pattern, placeholder in _OTHERS:
        text = pattern.sub(placeholder, text)
    return text[:LONGEST]
