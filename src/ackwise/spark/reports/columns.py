"""Table columns and cell formatting."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from ackwise.wire.number_format import number as number

NOTHING = "-"

Kind = Literal["text", "id", "number", "share", "duration", "moment", "error", "any"]


class Column(NamedTuple):
    """Column of a table. `kind` decides the format of its cells."""

    key: str
    label: str
    kind: Kind = "text"


def duration(value: float) -> str:
    """`350 ms`, `12.5 s`, `4 min`, `3.2 h`, `5 d`."""
    if 0 < value < 1:
        return f"{value * 1000:.3g} ms"
    for least, size, unit in ((172_800, 86_400, "d"), (7200, 3600, "h"), (120, 60, "min")):
        if value >= least:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"


def moment(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def cell(value: Any, kind: Kind) -> str:
    if value is None:
        return NOTHING
    match kind:
        case "number":
            return number(value)
        case "share":
            return f"{value:.2%}"
        case "duration":
            return duration(value)
        case "moment":
            return moment(value)
        case "any" if isinstance(value, datetime):
            return moment(value)
        case "any" if isinstance(value, int | float):
            return number(value)
        case _:
            return str(value)


_WHOSE = (Column("queue", "queue"), Column("group", "group"))
_COUNT = Column("count", "count", "number")
_SEEN = (Column("first_at", "first", "moment"), Column("last_at", "last", "moment"))
_BEHIND = (
    Column("lag", "lag", "number"),
    Column("unread", "unread", "number"),
    Column("held", "held", "number"),
    Column("oldest_seconds", "oldest", "duration"),
)

ERRORS = (_COUNT, Column("error", "error", "error"), Column("reason", "reason"), *_WHOSE, *_SEEN)
REASONS = (Column("reason", "reason"), *_WHOSE, _COUNT, *_SEEN)
TYPES = (Column("error_type", "type"), *_WHOSE, _COUNT, *_SEEN)
TIMES = (Column("at", "from", "moment"), Column("reason", "reason"), *_WHOSE, _COUNT)
CHOSEN = (*_WHOSE, Column("reason", "reason"), Column("error", "error"), _COUNT)
WINDOWS = (
    Column("window_start", "from", "moment"),
    *_WHOSE,
    Column("acked", "acked", "number"),
    Column("ack_rate", "acks/s", "number"),
    Column("success_rate", "success", "share"),
    Column("redelivery_rate", "redelivered", "share"),
    Column("dead", "dead", "number"),
    Column("latency_p50", "p50", "duration"),
    Column("latency_p95", "p95", "duration"),
    Column("latency_p99", "p99", "duration"),
)
GROUPS = (*_WHOSE, *_BEHIND, Column("ack_rate", "acks/s", "number"), Column("drain_seconds", "done in", "duration"))
PARTITIONS = (*_WHOSE, Column("partition", "partition"), *_BEHIND)
ARCHIVED = (
    Column("queue", "queue"),
    Column("messages", "archived", "number"),
    Column("missing", "missing", "number"),
    Column("pruned", "pruned", "number"),
    *_SEEN,
)
REPLAYED = (
    Column("queue", "queue"),
    Column("pushed", "pushed", "number"),
    Column("duplicates", "duplicates", "number"),
)
WOULD_REPLAY = (Column("queue", "queue"), Column("pushed", "would push", "number"))
