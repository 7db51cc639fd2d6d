"""`GET /v1/tables/…`: what is stored, in pages, as JSON or Arrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS
from ackwise.core.native import instants, payloads
from ackwise.dialects.http import ARROW, Answer, Call, Route, encode
from ackwise.server.native import arrow
from ackwise.server.native.reading import Arguments, UnknownTable, wants_arrow

PAGE = 100
LARGEST_PAGE = 10_000

Row = dict[str, Any]
Page = tuple[list[Row], dict[str, str | int | None]]
"""Rows with instants in microseconds and payloads in JSON, and what else there is to say: where the next page begins,
how many rows there are in all."""


class Table(NamedTuple):
    """`columns` say the kind of each; `query` makes of the arguments what is asked, `page` the rows of the answer."""

    columns: dict[str, str]
    query: Callable[[Arguments], q.Query]
    page: Callable[[Any, Any], Page]


def _limit(given: Arguments, default: int = PAGE) -> int:
    return given.count("limit", default, least=1, most=LARGEST_PAGE)


def _plainly(columns: dict[str, str]) -> Callable[[Any, Any], Page]:
    """Rows whose fields are the columns."""
    return lambda rows, _: ([{name: getattr(row, name) for name in columns} for row in rows], {})


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
        limit=_limit(given),
    )


def _place(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    lane, _, seq = text.partition(".")
    if not (text.isascii() and lane.isdigit() and seq.isdigit() and len(text) < 40):
        raise BadInput(f"after must be the 'next' of the page before, not {text!r:.60}")
    return int(lane), int(seq)


def _messages(rows: list[q.BrowsedMessage], query: q.Browse) -> Page:
    page = [
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
    more = len(rows) == query.limit
    return page, {"next": f"{rows[-1].message.lane}.{rows[-1].message.seq}" if more else None}


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
        limit=_limit(given),
        offset=given.count("offset", 0),
    )


def _dead_letters(page: q.DeadPage, _: q.ListDead) -> Page:
    rows = [_shown({name: getattr(letter, name) for name in DEAD_LETTERS}) for letter in page.letters]
    return rows, {"total": page.total}


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
        limit=_limit(given, 1000),
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


def _ledger(rows: list[q.LedgerRow], _: q.ReadLedger) -> Page:
    page, more = _plainly(LEDGER)(rows, None)
    for row in page:
        row["latency"] = {bound / MICROS: count for bound, count in row["latency"].items()}
    return page, more


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


TABLES = {
    "messages": Table(MESSAGES, _browse, _messages),
    "dead_letters": Table(DEAD_LETTERS, _list_dead, _dead_letters),
    "leases": Table(LEASES, _list_leases, _plainly(LEASES)),
    "ledger": Table(LEDGER, _read_ledger, _ledger),
    "groups": Table(GROUPS, _list_groups, _plainly(GROUPS)),
}


def routes(broker: AsyncBroker) -> list[Route]:
    async def read_table(call: Call) -> Answer:
        name = call.params[0]
        table = TABLES.get(name)
        if table is None:
            raise UnknownTable(f"there is no table {name!r:.60}; there are {', '.join(TABLES)}")
        given = Arguments(call.query)
        query = table.query(given)
        given.done()
        as_arrow = wants_arrow(call)
        if as_arrow:
            arrow.needed_to_write()
        found = await broker.ask(query)
        answered: Answer = await broker.in_thread(_answer, table, query, found, as_arrow)
        return answered

    return [Route("GET", "/v1/tables/{table}", read_table)]


def _answer(table: Table, query: q.Query, found: Any, as_arrow: bool) -> Answer:
    """A page may be long, so it is written beside the loop."""
    rows, more = table.page(found, query)
    if not as_arrow:
        return Answer(_json(table, rows, more))
    headers = tuple(
        (f"x-ackwise-{key}".encode(), f"{value}".encode()) for key, value in more.items() if value is not None
    )
    return Answer(_arrow(table, rows), content_type=ARROW, headers=headers)


def _json(table: Table, rows: list[Row], more: dict[str, str | int | None]) -> bytes:
    times = [name for name, kind in table.columns.items() if kind == "instant"]
    for row in rows:
        for name in times:
            row[name] = instants.text_or_none(row[name])
        if "payload" in row:
            row["payload"] = msgspec.Raw(row["payload"])
    return encode({"rows": rows, **more})


def _arrow(table: Table, rows: list[Row]) -> bytes:
    kinds = {name: "string" if kind == "payload" else kind for name, kind in table.columns.items()}
    return arrow.stream(kinds, {name: [row[name] for row in rows] for name in kinds})
