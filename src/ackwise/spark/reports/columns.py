"""Which columns tables have, on pages and in a terminal."""

from __future__ import annotations

from ackwise.spark.reports.cells import Column

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
