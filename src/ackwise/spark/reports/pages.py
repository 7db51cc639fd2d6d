"""HTML pages from templates."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ackwise.core.errors import BadInput
from ackwise.spark.java import make_private
from ackwise.spark.reports import columns
from ackwise.spark.reports.columns import NOTHING, Column, Kind, cell, duration, moment
from ackwise.spark.reports.summaries import FAILED, OUTCOMES, DeadLetterSummary, Row
from ackwise.wire import charts

MOST_BARS = 12
MOST_LINES = 6
MOST_ROWS = 500
NO_MESSAGE = "(no message)"


class ReportTable(NamedTuple):
    caption: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]


def write_dead_letter_report(
    path: Path, summary: DeadLetterSummary, *, outcomes: Sequence[tuple[str, object]] = ()
) -> None:
    """Write the page of `ackwise dlq report --html`. `outcomes` are names and numbers for its top."""
    total = summary.total
    named = sum(row["count"] for row in summary.errors)
    context: dict[str, Any] = {
        "scope": _scope(summary.queue, summary.group),
        "made_at": summary.made_at,
        "outcomes": outcomes,
        "total": total,
    }
    if total:
        context |= {
            "facts": [
                ("dead letters", total),
                ("different errors", len(summary.errors)),
                ("first", min(row["first_at"] for row in summary.reasons)),
                ("last", max(row["last_at"] for row in summary.reasons)),
            ],
            "when": _over_time(summary.times, summary.step),
            "times": ReportTable("Dead letters over time", columns.TIMES, summary.times[-MOST_ROWS:]),
            "top": charts.bars("The most frequent errors", _bars(summary.errors, "error", NO_MESSAGE)),
            "errors": ReportTable("Dead letters by error, the most frequent first", columns.ERRORS, summary.errors),
            "more": total - named,
            "by_reason": charts.bars("Dead letters by reason", _bars(summary.reasons, "reason", NOTHING)),
            "reasons": ReportTable("Dead letters by reason", columns.REASONS, summary.reasons[:MOST_ROWS]),
            "by_type": charts.bars("Dead letters by type of error", _bars(summary.error_types, "error_type", "(none)")),
            "types": ReportTable("Dead letters by type of error", columns.TYPES, summary.error_types[:MOST_ROWS]),
            "hint": _hint(summary),
        }
    write(path, "dead_letters.html.j2", context)


def write_metrics_report(
    path: Path, rows: Sequence[Row], made_at: datetime, *, queue: str | None = None, group: str | None = None
) -> None:
    """Write the page of `ackwise metrics --html`. `rows` come from the job."""
    context: dict[str, Any] = {"scope": _scope(queue, group), "made_at": made_at, "rows": rows}
    if rows:
        acked = sum(row["acked"] for row in rows)
        tried = acked + sum(row[name] for row in rows for name in FAILED)
        starts = sorted({row["window_start"] for row in rows})
        step = (rows[0]["window_end"] - rows[0]["window_start"]).total_seconds()
        context |= {
            "facts": [
                ("acked", acked),
                ("success", f"{acked / tried:.2%}" if tried else NOTHING),
                ("retried", sum(row["retried"] for row in rows)),
                ("dead", sum(row["dead"] for row in rows)),
            ],
            "settled": _settled(rows, starts, step),
            "latencies": _latencies(rows, step),
            "windows": ReportTable("Every queue, group and window", columns.WINDOWS, rows[-MOST_ROWS:]),
        }
    write(path, "metrics.html.j2", context)


def write_lag_report(
    path: Path, rows: Sequence[Row], made_at: datetime, *, queue: str | None = None, group: str | None = None
) -> None:
    """Write the page of `ackwise lag --html`. `rows` come from the job, per group or per partition."""
    context: dict[str, Any] = {"scope": _scope(queue, group), "made_at": made_at, "rows": rows}
    if rows:
        apart = "partition" in rows[0]
        behind = [row["oldest_seconds"] for row in rows if row["oldest_seconds"] is not None]
        context |= {
            "facts": [
                ("unfinished", sum(row["lag"] for row in rows)),
                ("of that held", sum(row["held"] for row in rows)),
                ("oldest", duration(max(behind)) if behind else NOTHING),
            ],
            "chart": charts.bars("Lag", [(_named(row), row["lag"]) for row in rows[:MOST_BARS]]),
            "groups": ReportTable(
                "Lag, the largest first", columns.PARTITIONS if apart else columns.GROUPS, rows[:MOST_ROWS]
            ),
            "estimated": not apart,
        }
    write(path, "lag.html.j2", context)


def _named(row: Row) -> str:
    return " · ".join(row[key] for key in ("queue", "group", "partition") if key in row)


def _totals(rows: Sequence[Row], key: str) -> list[tuple[str, int]]:
    """Totals over all queues and groups, the most frequent first."""
    totals: dict[str, int] = {}
    for row in rows:
        totals[row[key]] = totals.get(row[key], 0) + row["count"]
    return sorted(totals.items(), key=lambda total: (-total[1], total[0]))


def _bars(rows: Sequence[Row], key: str, unnamed: str) -> list[tuple[str, float]]:
    return [(name or unnamed, count) for name, count in _totals(rows, key)[:MOST_BARS]]


def _over_time(times: Sequence[Row], step: int) -> Markup:
    """Chart of all time steps from the first to the last, also the empty ones."""
    first, last = times[0]["at"], times[-1]["at"]
    starts = _steps(first, last, step)
    counts = {reason: dict.fromkeys(starts, 0) for reason, _ in _totals(times, "reason")}
    for row in times:
        counts[row["reason"]][row["at"]] += row["count"]
    series = {reason: list(by_time.values()) for reason, by_time in counts.items()}
    return charts.stacked("Dead letters over time", starts, step, series)


def _steps(first: datetime, last: datetime, step: float) -> list[datetime]:
    return [first + timedelta(seconds=step * at) for at in range(round((last - first).total_seconds() / step) + 1)]


def _settled(rows: Sequence[Row], starts: Sequence[datetime], step: float) -> Markup:
    """Chart of settlements, summed over queues and groups, with empty windows."""
    every = _steps(starts[0], starts[-1], step)
    series = {}
    for name in OUTCOMES:
        by_window = dict.fromkeys(every, 0)
        for row in rows:
            by_window[row["window_start"]] += row[name]
        if any(by_window.values()):
            series[name] = list(by_window.values())
    return charts.stacked("Settled per window", every, step, series)


def _latencies(rows: Sequence[Row], step: float) -> list[tuple[str, Markup]]:
    """One chart for each of the busiest groups."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["queue"], row["group"]), []).append(row)
    busiest = sorted(groups.items(), key=lambda item: -sum(row["acked"] for row in item[1]))[:MOST_LINES]
    charted = []
    for (queue, group), group_rows in busiest:
        name = f"{queue} · {group}"
        known = {row["window_start"]: row for row in group_rows}
        times = _steps(min(known), max(known), step)
        series = {f"p{q}": [known[at][f"latency_p{q}"] if at in known else None for at in times] for q in (50, 95, 99)}
        charted.append((name, charts.lines(f"Seconds from claim to ack, {name}", times, series, unit=" s")))
    return charted


def _hint(summary: DeadLetterSummary) -> str:
    """Redrive command for the most frequent reason."""
    (most, _), *_ = _totals(summary.reasons, "reason")
    where = f"reason = '{most}'"
    parts = ["ackwise", "dlq", "redrive", *(("--queue", summary.queue) if summary.queue else ())]
    parts += [*(("--group", summary.group) if summary.group else ()), "--where", where]
    return shlex.join(parts)


def _scope(queue: str | None, group: str | None) -> str:
    whose = " and ".join([f"Queue {queue}" if queue else "All queues", f"group {group}" if group else "all groups"])
    return f"{whose}."


_CLASSES: dict[Kind, str] = {"number": "n", "share": "n", "duration": "n", "moment": "t", "error": "e"}


@functools.cache
def _templates() -> Environment:
    """Template environment. It escapes everything, because dead letters hold untrusted data."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"moment": moment, "cell": cell, "cell_class": lambda kind: _CLASSES.get(kind, "")}
    return environment


def write(path: Path, template: str, context: Mapping[str, Any]) -> None:
    text = _templates().get_template(template).render(context)
    try:
        make_private(path.parent)
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise BadInput(f"the report cannot be written to {path}: {problem.strerror or problem}") from None
