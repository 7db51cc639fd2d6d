"""Columns of the source."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ackwise.core.errors import BadInput
from ackwise.spark.source.options import SourceOptions
from ackwise.spark.types import from_ddl

CORRUPT = "_corrupt"

_TEXT, _INT, _LONG, _TIME = StringType(), IntegerType(), LongType(), TimestampType()
_HEADERS = MapType(_TEXT, _TEXT)


def _struct(columns: Mapping[str, object]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])  # type: ignore[arg-type]


STREAM = _struct(
    {
        "delivery_id": _TEXT,
        "message_id": _TEXT,
        "transaction_id": _TEXT,
        "queue": _TEXT,
        "partition": _TEXT,
        "priority": _INT,
        "seq": _LONG,
        "attempt": _INT,
        "payload": _TEXT,
        "headers": _HEADERS,
        "created_at": _TIME,
    }
)
"""Columns of a stream."""

RANGES = _struct(
    {
        "lane": _LONG,
        "queue": _TEXT,
        "partition": _TEXT,
        "partition_id": _TEXT,
        "priority": _INT,
        "lo": _LONG,
        "hi": _LONG,
        "attempt": _INT,
        "lease_no": _LONG,
        "lease_tag": _LONG,
    }
)
"""Columns of a stream of lane ranges. A query that asks for exactly this schema gets ranges instead of messages."""

TABLES = {
    "messages": _struct(
        {
            "message_id": _TEXT,
            "transaction_id": _TEXT,
            "queue": _TEXT,
            "partition": _TEXT,
            "partition_id": _TEXT,
            "priority": _INT,
            "seq": _LONG,
            "payload": _TEXT,
            "headers": _HEADERS,
            "content_type": _TEXT,
            "created_at": _TIME,
            "state": _TEXT,
        }
    ),
    "dead_letters": _struct(
        {
            "id": _TEXT,
            "message_id": _TEXT,
            "partition_id": _TEXT,
            "transaction_id": _TEXT,
            "consumer_group": _TEXT,
            "error_message": _TEXT,
            "retry_count": _INT,
            "original_created_at": _TIME,
            "moved_to_dlq_at": _TIME,
            "queue": _TEXT,
            "partition": _TEXT,
            "seq": _LONG,
            "reason": _TEXT,
            "error_type": _TEXT,
            "deliveries": _INT,
            "payload": _TEXT,
            "headers": _HEADERS,
            "content_type": _TEXT,
        }
    ),
    "groups": _struct(
        {
            "queue": _TEXT,
            "partition": _TEXT,
            "partition_id": _TEXT,
            "consumer_group": _TEXT,
            "last_consumed_id": _TEXT,
            "last_consumed_created_at": _TIME,
            "last_consumed_at": _TIME,
            "total_messages_consumed": _LONG,
            "lag": _LONG,
            "unread": _LONG,
            "held": _LONG,
            "dead": _LONG,
            "skipped": _LONG,
            "expired": _LONG,
            "leases": _LONG,
            "oldest_unfinished_at": _TIME,
        }
    ),
    "leases": _struct(
        {
            "lease_id": _TEXT,
            "queue": _TEXT,
            "consumer_group": _TEXT,
            "owner": _TEXT,
            "key": _TEXT,
            "made_at": _TIME,
            "deadline": _TIME,
            "ended_at": _TIME,
            "end_kind": _TEXT,
            "granted": _LONG,
            "held": _LONG,
        }
    ),
    "ledger": _struct(
        {
            "queue": _TEXT,
            "consumer_group": _TEXT,
            "minute": _TIME,
            "outcome": _TEXT,
            "count": _LONG,
            "latency": MapType(DoubleType(), _LONG),
        }
    ),
}
"""Columns of each table that a batch reads. A column has the name that Queen's SQL tables give it, if they have it."""


def of_payload(options: SourceOptions) -> StructType | None:
    """Schema of the option `payloadSchema`, None without the option."""
    text = options.payload_schema
    return None if text is None else from_ddl(text, "option payloadSchema")


def full(base: StructType, options: SourceOptions) -> StructType:
    """The columns of `base`, then those of `payloadSchema` and `_corrupt`."""
    if options.payload_schema is not None and "payload" not in base.names:
        raise BadInput(f"option payloadSchema: the table {options.table} has no payload")
    parsed = of_payload(options)
    if parsed is None:
        return base
    for name in (*parsed.names, CORRUPT):
        if name in base.names or (name == CORRUPT and name in parsed.names):
            raise BadInput(f"option payloadSchema: the source has a column {name!r} already; rename the field")
    # A payload that does not fit has null in each of these columns, also in those that are not nullable.
    inside = [StructField(field.name, field.dataType) for field in parsed.fields]
    return StructType([*base.fields, *inside, StructField(CORRUPT, _TEXT)])


def pruned(wanted: StructType, known: StructType) -> StructType:
    """Check the user's schema: it may choose columns, not change their types."""
    kinds = {field.name: field.dataType for field in known.fields}
    for field in wanted.fields:
        kind = kinds.get(field.name)
        if kind is None:
            raise BadInput(f"schema: the source has no column {field.name!r}; it has {', '.join(kinds)}")
        if field.dataType != kind:
            expected, actual = field.dataType.simpleString(), kind.simpleString()
            raise BadInput(f"schema: the column {field.name!r} is {actual}, not {expected}")
    return wanted
