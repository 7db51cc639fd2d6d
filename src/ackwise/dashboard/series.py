"""Time series of the ledger for charts: messages by outcome in the last hour, day or week."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from markupsafe import Markup

from ackwise.broker import AsyncBroker
from ackwise.core.queen_queries import TotalLedger
from ackwise.dashboard.request import PageRequest
from ackwise.wire import charts
from ackwise.wire.timestamps import moment

MINUTE = 60_000_000
PUSHED = "pushed"
OUTCOMES = ("acked", "retried", "released", "dead")
"""Outcomes of a chart from the bottom up."""
COLOURS = (1, 2, 7, 3, 0)
"""Their colours: green, amber, grey and red, then blue for pushes."""


class ChartSpan(NamedTuple):
    """A time span of a chart: its number of columns, the minutes of a column, and seconds between two reads."""

    title: str
    columns: int
    minutes: int
    interval: float

    @property
    def step(self) -> int:
        return self.minutes * MINUTE


SPANS = {
    "hour": ChartSpan("Last hour", 60, 1, 5.0),
    "day": ChartSpan("Last day", 72, 20, 30.0),
    "week": ChartSpan("Last week", 84, 120, 120.0),
}


class Series(NamedTuple):
    """Counts by outcome, one per column. `starts` are wall-clock instants."""

    span: ChartSpan
    starts: list[int]
    counts: dict[str, list[int]]

    def total(self, outcome: str) -> int:
        return sum(self.counts[outcome])

    @property
    def is_empty(self) -> bool:
        return not any(map(sum, self.counts.values()))


async def read_series(broker: AsyncBroker, span: ChartSpan, queue: str | None = None) -> Series:
    """Counts of one queue, or of all queues together."""
    now, shift = broker.now_and_shift()
    newest = (now - shift) // span.step * span.step
    first = newest - (span.columns - 1) * span.step
    rows = await broker.ask(
        TotalLedger(after_at=first, before_at=newest + span.step - 1, minutes=span.minutes, queue=queue)
    )
    counts = {outcome: [0] * span.columns for outcome in (PUSHED, *OUTCOMES)}
    for row in rows:
        column = (row.bucket - first) // span.step
        if row.outcome in counts and 0 <= column < span.columns:
            counts[row.outcome][column] += row.count
    return Series(span, [first + at * span.step for at in range(span.columns)], counts)


async def flow_chart(page: PageRequest, queue: str | None = None) -> tuple[str, Series, Markup]:
    """Name of the span that the URL selects, its series, and a chart of settlements with a line of pushes."""
    name = page.query.get("span", "hour")
    name = name if name in SPANS else "hour"
    span = SPANS[name]
    series = await page.cached(("series", name, queue), lambda: read_series(page.broker, span, queue), span.interval)
    chart = charts.timeline(
        f"Messages per {_column(span)}",
        [moment(start) for start in series.starts],
        timedelta(microseconds=span.step).total_seconds(),
        {outcome: series.counts[outcome] for outcome in OUTCOMES},
        line=(PUSHED, series.counts[PUSHED]),
        colours=COLOURS,
    )
    return name, series, chart


def _column(span: ChartSpan) -> str:
    """The time of one column in words."""
    if span.minutes == 1:
        return "minute"
    return f"{span.minutes} minutes" if span.minutes < 60 else f"{span.minutes // 60} hours"
