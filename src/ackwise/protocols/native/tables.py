"""Tables and lists of the native API: columns, query and rows of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ackwise.core import queries as q
from ackwise.core.answers import QueueInfo
from ackwise.core.errors import BadInput
from ackwise.core.rows import BrowsedMessage, DeadPage, LedgerRow
from ackwise.core.validation import MICROS
from ackwise.protocols.native.request_arguments import Arguments
from ackwise.wire import payloads

PAGE = 100
LARGEST_PAGE = 10_000

Row = dict[str, Any]
"""Values by column name. Times are microseconds, payloads are JSON."""


class NativeTable(NamedTuple):
    """Description of a table or list."""

    columns: dict[str, str]
    """Kind of each column, by name."""
    query: Callable[[Arguments], q.Query]
    """Builds the query from the request's arguments."""
    rows: Callable[[Any, Any], list[Row]]
    """Converts the query's page into rows."""
    place: Any
    """Type of the cursors."""
    page: int | None = PAGE
    """Rows of a request without a limit. None: all rows."""


def _fields(columns: dict[str, str]) -> Callable[[Any, Any], list[Row]]:
    """Converts rows whose fields have the columns' names."""
    return lambda rows, _: [{name: getattr(row, name) for name in columns} for row in rows]


def _shown(row: Row) -> Row:
    row["payload"], row["content_type"] = payloads.for_answer(row["payload"], row["content_type"])
    return row


MESSAGES = {
    "message_id": "string",
    "transaction_id": "string",
    "queue": "string",
    "partition": "string",
    "partition_id": "string",
    "priority": "int",
    "lane": "long",
    "seq": "long",
    "payload": "payload",
    "headers": "headers",
    "content_type": "string",
    "created_at": "instant",
    "state": "string",
}


def _browse(arguments: Arguments) -> q.Browse:
    return q.Browse(
        queue=arguments.needed("queue"),
        partition=arguments.text("partition"),
        group=arguments.text("group"),
        after=_place(arguments.text("after")),
    )


def _place(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    lane, _, seq = text.partition(".")
    if not (text.isascii() and lane.isdigit() and seq.isdigit() and len(text) < 40):
        raise BadInput(f"after must be the value of 'next' in the previous page, not {text!r:.60}")
    return int(lane), int(seq)


def _messages(rows: list[BrowsedMessage], query: q.Browse) -> list[Row]:
    return [
        _shown(
            {
                "message_id": row.message.id,
                "transaction_id": row.message.transaction_id,
                "queue": query.queue,
                "partition": row.partition,
                "partition_id": row.partition_id,
                "priority": row.priority,
                "lane": row.message.lane,
                "seq": row.message.seq,
                "payload": row.message.payload,
                "headers": row.message.headers,
                "content_type": row.message.content_type,
                "created_at": row.message.created_at,
                "state": row.state,
            }
        )
        for row in rows
    ]


DEAD_LETTERS = {
    "id": "string",
    "queue": "string",
    "partition": "string",
    "partition_id": "string",
    "group": "string",
    "seq": "long",
    "message_id": "string",
    "transaction_id": "string",
    "reason": "string",
    "error": "string",
    "error_type": "string",
    "failures": "int",
    "deliveries": "int",
    "payload": "payload",
    "headers": "headers",
    "content_type": "string",
    "created_at": "instant",
    "dead_at": "instant",
}


def _list_dead(arguments: Arguments) -> q.ListDead:
    return q.ListDead(
        queue=arguments.text("queue"),
        group=arguments.text("group"),
        partition=arguments.text("partition"),
        reason=arguments.text("reason"),
        kind=arguments.text("kind"),
        after_at=arguments.instant("after"),
        before_at=arguments.instant("before"),
        offset=arguments.count("offset", 0),
    )


def _dead_letters(page: DeadPage, _: q.ListDead) -> list[Row]:
    return [_shown({name: getattr(letter, name) for name in DEAD_LETTERS}) for letter in page.letters]


LEASES = {
    "lease_id": "string",
    "queue": "string",
    "group": "string",
    "owner": "string",
    "key": "string",
    "made_at": "instant",
    "deadline": "instant",
    "ended_at": "instant",
    "end_kind": "string",
    "granted": "long",
    "held": "long",
}


def _list_leases(arguments: Arguments) -> q.ListLeases:
    return q.ListLeases(
        queue=arguments.text("queue"),
        group=arguments.text("group"),
        live_only=arguments.flag("live_only", True),
    )


def _list_oldest_leases(arguments: Arguments) -> q.ListOldestLeases:
    return q.ListOldestLeases(queue=arguments.text("queue"))


LEDGER = {
    "queue": "string",
    "group": "string",
    "minute": "instant",
    "outcome": "string",
    "count": "long",
    "latency": "latency",
}


def _read_ledger(arguments: Arguments) -> q.ReadLedger:
    return q.ReadLedger(
        queue=arguments.text("queue"),
        group=arguments.text("group"),
        after_at=arguments.instant("after"),
        before_at=arguments.instant("before"),
    )


def _ledger(rows: list[LedgerRow], _: q.ReadLedger) -> list[Row]:
    page = _fields(LEDGER)(rows, None)
    for row in page:
        row["latency"] = {bound / MICROS: count for bound, count in row["latency"].items()}
    return page


GROUPS = {
    "queue": "string",
    "group": "string",
    "lag": "long",
    "unread": "long",
    "held": "long",
    "leased": "long",
    "acked": "long",
    "dead": "long",
    "skipped": "long",
    "expired": "long",
    "leases": "long",
    "members": "strings",
    "oldest_unfinished_at": "instant",
    "settled_at": "instant",
    "created_at": "instant",
}


def _list_groups(arguments: Arguments) -> q.ListGroups:
    return q.ListGroups(queue=arguments.text("queue"), group=arguments.text("group"))


QUEUES = {
    "queue": "string",
    "namespace": "string",
    "task": "string",
    "paused": "bool",
    "policy": "json",
    "created_at": "instant",
}


def _list_queues(arguments: Arguments) -> q.ListQueues:
    return q.ListQueues(namespace=arguments.text("namespace"), task=arguments.text("task"))


def _queues(rows: list[QueueInfo], _: q.ListQueues) -> list[Row]:
    return [{"queue": row.name, **{name: getattr(row, name) for name in list(QUEUES)[1:]}} for row in rows]


CONSUMERS = {
    "queue": "string",
    "group": "string",
    "consumer": "string",
    "leases": "long",
    "held": "long",
    "claims": "long",
    "last_claim_at": "instant",
    "deadline": "instant",
}


def _list_consumers(arguments: Arguments) -> q.ListConsumers:
    recent = arguments.count("recent_seconds", 60, most=q.ListConsumers.LONGEST_RECENT // MICROS)
    return q.ListConsumers(queue=arguments.text("queue"), group=arguments.text("group"), recent=recent * MICROS)


TABLES = {
    "messages": NativeTable(MESSAGES, _browse, _messages, tuple[int, int]),
    "dead_letters": NativeTable(DEAD_LETTERS, _list_dead, _dead_letters, tuple[int, int]),
    "leases": NativeTable(LEASES, _list_leases, _fields(LEASES), str, 1000),
    "ledger": NativeTable(LEDGER, _read_ledger, _ledger, tuple[int, str, str, str], None),
    "groups": NativeTable(GROUPS, _list_groups, _fields(GROUPS), tuple[str, str], None),
}
LISTS = {
    "queues": NativeTable(QUEUES, _list_queues, _queues, str),
    "groups": TABLES["groups"]._replace(page=PAGE),
    "leases": TABLES["leases"]._replace(page=PAGE),
    "oldest-leases": NativeTable(LEASES, _list_oldest_leases, _fields(LEASES), tuple[int, str], 10),
    "consumers": NativeTable(CONSUMERS, _list_consumers, _fields(CONSUMERS), tuple[str, str, str]),
    "messages": TABLES["messages"],
    "dead-letters": TABLES["dead_letters"],
}
"""Lists `/v1/<name>`: always a page and a cursor, JSON only."""
