"""Routes of tables and lists (`/v1/tables/…`, `/v1/queues`): pages with a cursor, or a whole table, streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.broker.handing import answer
from ackwise.core import cursors, limits
from ackwise.core import queries as q
from ackwise.core.native import admin, instants
from ackwise.dialects.http import ARROW, Answer, Call, Route, encode
from ackwise.dialects.pages import ROWS, SMALL_PAGE, array, pages, streamed
from ackwise.server.native import arrow
from ackwise.server.native.reading import Arguments, UnknownTable, wants_arrow
from ackwise.server.native.tables import LARGEST_PAGE, LISTS, TABLES, Row, Table
from ackwise.store.port import Store

_STREAMED = (
    q.ListQueues, q.ListStats, q.ListGroups, q.ListGroupNames, q.ListPartitions, q.ListPlaces, q.ListDepths,
    q.ListLeases, q.ReadLedger,
)  # fmt: skip
"""Queries whose answers have no bound in bytes: the server streams an answer of more than one page."""


def routes(broker: AsyncBroker) -> list[Route]:
    async def read_table(call: Call) -> Answer:
        name = call.params[0]
        table = TABLES.get(name)
        if table is None:
            raise UnknownTable(f"table {name!r:.60} does not exist; the tables are {', '.join(TABLES)}")
        query, limit = _query(table, call)
        as_arrow = wants_arrow(call)
        if as_arrow:
            arrow.needed_to_write()
        await call.reserve(_size(query))
        if limit is None:
            return await _whole(call, broker, table, query, as_arrow)
        made: Answer = await broker.in_thread(_page, broker.store, table, query, "rows", as_arrow)
        return made

    def read_list(name: str, table: Table) -> Callable[[Call], Any]:
        key = name.replace("-", "_")

        async def read(call: Call) -> Answer:
            query, _ = _query(table, call)
            await call.reserve(_size(query))
            made: Answer = await broker.in_thread(_page, broker.store, table, query, key, False)
            return made

        return read

    async def ask(call: Call) -> Answer:
        query = await call.read(admin.QUERIES)
        await call.reserve(_size(query))
        if isinstance(query, _STREAMED) and (query.limit is None or query.limit > ROWS):
            return await streamed(call, array(pages(broker, query, _bare, most=query.limit)))
        return Answer(await broker.in_thread(_asked, broker.store, query))

    return [
        Route("GET", "/v1/tables/{table}", read_table),
        *(Route("GET", f"/v1/{name}", read_list(name, table)) for name, table in LISTS.items()),
        Route("POST", "/v1/ask", ask),
    ]


def _size(query: q.Query) -> int:
    """The bytes that a page of this answer may have."""
    return limits.ANSWER_BYTES if isinstance(query, q.Browse | q.ListDead) else SMALL_PAGE


def _asked(store: Store, query: q.Query) -> bytes:
    return admin.encode(answer(store, query))


def _bare(rows: list[Any]) -> bytes:
    """Rows as JSON without the brackets around them."""
    return admin.encode(rows)[1:-1]


def _query(table: Table, call: Call) -> tuple[q.Query, int | None]:
    """The query, and the most rows of its answer. None: all rows."""
    given = Arguments(call.query)
    query = table.query(given)
    cursor = given.text("cursor")
    limit: int | None = given.count("limit", 0, least=1, most=LARGEST_PAGE) or table.page
    given.done()
    if cursor is not None:
        query = msgspec.structs.replace(query, after=cursors.parse(cursor, table.place))
    return (query if limit is None else msgspec.structs.replace(query, limit=limit)), limit


def _page(store: Store, table: Table, query: q.Query, key: str, as_arrow: bool) -> Answer:
    """One page, read and written in a helper thread."""
    page = answer(store, query)
    rows, more = table.rows(page, query), {"next": _next(query, page.next)}
    if isinstance(page, q.DeadPage):
        more["total"] = page.total
    if not as_arrow:
        return Answer(encode({key: [_shown(table, row) for row in rows], **more}))
    headers = tuple(
        (f"x-ackwise-{name}".encode(), f"{value}".encode()) for name, value in more.items() if value is not None
    )
    stream = arrow.Stream(_kinds(table))
    return Answer(stream.add(_columns(table, rows)) + stream.end(), content_type=ARROW, headers=headers)


def _next(query: q.Query, place: Any) -> Any:
    """The cursor of the next page. Places of messages stay plain text, as before the other lists had cursors."""
    if isinstance(query, q.Browse):
        return None if place is None else f"{place[0]}.{place[1]}"
    return cursors.text(place)


async def _whole(call: Call, broker: AsyncBroker, table: Table, query: q.Query, as_arrow: bool) -> Answer:
    """Every row, page by page."""
    if as_arrow:
        return await streamed(call, _batches(broker, table, query), ARROW)

    def shown(page: Any) -> bytes:
        return b",".join([encode(_shown(table, row)) for row in table.rows(page, query)])

    return await streamed(call, array(pages(broker, query, shown), b'{"rows":[', lambda: b'],"next":null}'))


async def _batches(broker: AsyncBroker, table: Table, query: q.Query) -> AsyncIterator[bytes]:
    stream = arrow.Stream(_kinds(table))

    def batch(page: Any) -> bytes:
        return stream.add(_columns(table, table.rows(page, query)))

    async for piece in pages(broker, query, batch, rows=10 * ROWS):
        yield piece
    yield stream.end()


def _shown(table: Table, row: Row) -> Row:
    """A row as JSON shows it."""
    for name, kind in table.columns.items():
        if kind == "instant":
            row[name] = instants.text_or_none(row[name])
        elif kind == "payload":
            row[name] = msgspec.Raw(row[name])
    return row


def _kinds(table: Table) -> dict[str, str]:
    return {name: "string" if kind == "payload" else kind for name, kind in table.columns.items()}


def _columns(table: Table, rows: list[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in table.columns}
