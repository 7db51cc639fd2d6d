"""Tables and lists of the store: their columns, their queries and the rows of a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ackwise.core import queries as q
from ackwise.core.answers import QueueInfo
from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS
from ackwise.core.native import payloads
from ackwise.server.native.reading import Arguments

PAGE = 100
LARGEST_PAGE = 10_000

Row = dict[str, Any]
"""Instants are microseconds, payloads are JSON."""


class Table(NamedTuple):
    """`columns` give the kind of each column, `query` builds the query from the arguments, `rows` the rows of a page.

    `place` is the type of the cursors. `page` is the limit of a request without a limit. None: the table is sent whole.
    """

    columns: dict[str, str]
    query: Callable[[Arguments], q.Query]
    rows: Callable[[Any, Any], list[Row]]
    place: Any
    page: int | None = PAGE


def _plainly(columns: dict[str, str]) -> Callable[[Any, Any], list[Row]]:
    """Rows whose fields are the columns."""
    return lambda rows, _: [{name: getattr(row, name) for name in columns} for row in rows]


def _shown(row: Row) -> Row:
    row["payload"], row["content_type"] = payloads.shown(row["payload"], row["content_type"])
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


def _browse(given: Arguments) -> q.Browse:
    return q.Browse(
        queue=given.needed("queue"),
        partition=given.text("partition"),
        group=given.text("group"),
        after=_place(given.text("after")),
    )


def _place(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    lane, _, seq = text.partition(".")
    if not (text.isascii() and lane.isdigit() and seq.isdigit() and len(text) < 40):
        raise BadInput(f"after must be the 'next' of the page before, not {text!r:.60}")
    return int(lane), int(seq)


def _messages(rows: list[q.BrowsedMessage], query: q.Browse) -> list[Row]:
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


def _list_dead(given: Arguments) -> q.ListDead:
    return q.ListDead(
        queue=given.text("queue"),
        group=given.text("group"),
        partition=given.text("partition"),
        reason=given.text("reason"),
        after_at=given.instant("after"),
        before_at=given.instant("before"),
        offset=given.count("offset", 0),
    )


def _dead_letters(page: q.DeadPage, _: q.ListDead) -> list[Row]:
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


def _list_leases(given: Arguments) -> q.ListLeases:
    return q.ListLeases(
        queue=given.text("queue"),
        group=given.text("group"),
        live_only=given.flag("live_only", True),
    )


LEDGER = {
    "queue": "string",
    "group": "string",
    "minute": "instant",
    "outcome": "string",
    "count": "long",
    "latency": "latency",
}


def _read_ledger(given: Arguments) -> q.ReadLedger:
    return q.ReadLedger(
        queue=given.text("queue"),
        group=given.text("group"),
        after_at=given.instant("after"),
        before_at=given.instant("before"),
    )


def _ledger(rows: list[q.LedgerRow], _: q.ReadLedger) -> list[Row]:
    page = _plainly(LEDGER)(rows, None)
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


def _list_groups(given: Arguments) -> q.ListGroups:
    return q.ListGroups(queue=given.text("queue"), group=given.text("group"))


QUEUES = {
    "queue": "string",
    "namespace": "string",
    "task": "string",
    "paused": "bool",
    "policy": "json",
    "created_at": "instant",
}


def _list_queues(given: Arguments) -> q.ListQueues:
    return q.ListQueues(namespace=given.text("namespace"), task=given.text("task"))


def _queues(rows: list[QueueInfo], _: q.ListQueues) -> list[Row]:
    return [{"queue": row.name, **{name: getattr(row, name) for name in list(QUEUES)[1:]}} for row in rows]


TABLES = {
    "messages": Table(MESSAGES, _browse, _messages, tuple[int, int]),
    "dead_letters": Table(DEAD_LETTERS, _list_dead, _dead_letters, tuple[int, int]),
    "leases": Table(LEASES, _list_leases, _plainly(LEASES), str, 1000),
    "ledger": Table(LEDGER, _read_ledger, _ledger, tuple[int, str, str, str], None),
    "groups": Table(GROUPS, _list_groups, _plainly(GROUPS), tuple[str, str], None),
}
LISTS = {
    "queues": Table(QUEUES, _list_queues, _queues, str),
    "groups": TABLES["groups"]._replace(page=PAGE),
    "leases": TABLES["leases"]._replace(page=PAGE),
    "messages": TABLES["messages"],
    "dead-letters": TABLES["dead_letters"],
}
"""Lists `/v1/<name>`: always a page and a cursor, JSON only."""
