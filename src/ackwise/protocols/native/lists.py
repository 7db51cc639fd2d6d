"""Routes of tables and lists (`/v1/tables/…`, `/v1/queues`): pages with a cursor, or a whole table, streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import cursors, validation
from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from ackwise.core.rows import DeadPage, Page
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import ARROW, Answer, Handler, Route, encode
from ackwise.protocols.native import arrow
from ackwise.protocols.native.list_docs import DOCS, GROUPS_OF_QUEUE, PROBLEM_LISTS
from ackwise.protocols.native.request_arguments import Arguments, UnknownTable, wants_arrow
from ackwise.protocols.native.resource_answers import as_resource
from ackwise.protocols.native.tables import LARGEST_PAGE, LISTS, TABLES, NativeTable, Row
from ackwise.protocols.streamed_lists import ROWS, SMALL_PAGE, array, ask_page, pages, streamed
from ackwise.store.port import Store
from ackwise.wire import admin, timestamps

_BOUNDED = (q.Browse, q.ListDead)
"""Lists whose queries end a page at `validation.ANSWER_BYTES`. The pages of other lists end at `PAGE_BYTES`."""
PAGE_BYTES = SMALL_PAGE
READ_AT_ONCE = 100
"""Rows that a page without messages reads at once. A page may exceed `PAGE_BYTES` by these rows."""


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
        page: Answer = await broker.in_thread(_page, broker.store, table, query, "rows", as_arrow)
        return page

    def read_list(name: str, table: NativeTable) -> Callable[[Call], Any]:
        key = name.replace("-", "_")

        async def read(call: Call) -> Answer:
            query, _ = _query(table, call)
            await call.reserve(_size(query))
            page: Answer = await broker.in_thread(_page, broker.store, table, query, key, False)
            return page

        return read

    async def read_groups(call: Call) -> Answer:
        """The groups of the queue that the path names."""
        if "queue" in call.query:
            raise BadInput("the path names the queue; leave out the parameter queue")
        call.query["queue"] = call.params[0]
        page: Answer = await read_list("groups", LISTS["groups"])(call)
        return page

    async def ask(call: Call) -> Answer:
        query = await call.read(admin.QUERIES)
        await call.reserve(_size(query))
        limit: int | None = 0 if isinstance(query, _BOUNDED) else getattr(query, "limit", 0)
        if limit is None or limit > ROWS:
            query.check()
            return await streamed(call, array(pages(broker, query, _bare, most=limit)))
        return Answer(await broker.in_thread(_query_result, broker.store, query))

    return [
        Route("GET", "/v1/tables/{table}", read_table),
        *(_list_route(name, read_list(name, table)) for name, table in LISTS.items()),
        as_resource(Route("GET", "/v1/queues/{queue}/groups", read_groups, doc=GROUPS_OF_QUEUE)),
        Route("POST", "/v1/ask", ask),
    ]


def _list_route(name: str, handler: Handler) -> Route:
    """Route of a list. The older lists keep the older form of errors."""
    route = Route("GET", f"/v1/{name}", handler, doc=DOCS[f"GET /v1/{name}"])
    return as_resource(route) if name in PROBLEM_LISTS else route


def _size(query: q.Query) -> int:
    """The bytes that a page of this answer may have."""
    return validation.ANSWER_BYTES if isinstance(query, _BOUNDED) else SMALL_PAGE


def _query_result(store: Store, query: q.Query) -> bytes:
    return admin.encode(store.ask(query))


def _bare(rows: list[Any]) -> bytes:
    """Rows as JSON without the brackets around them."""
    return admin.encode(rows)[1:-1]


def _query(table: NativeTable, call: Call) -> tuple[q.Query, int | None]:
    """The query, and the maximum number of rows in its answer. None means all rows."""
    arguments = Arguments(call.query)
    query = table.query(arguments)
    cursor = arguments.text("cursor")
    largest = min(LARGEST_PAGE, query.LARGEST_LIMIT)
    limit: int | None = arguments.count("limit", 0, least=1, most=largest) or table.page
    arguments.done()
    if cursor is not None:
        query = msgspec.structs.replace(query, after=cursors.parse(cursor, table.place))
    return (query if limit is None else msgspec.structs.replace(query, limit=limit)), limit


def _page(store: Store, table: NativeTable, query: q.Query, key: str, as_arrow: bool) -> Answer:
    """One page, read and written in a helper thread."""
    rows, page = _rows(store, table, query)
    more = {"next": _next(query, page.next)}
    if isinstance(page, DeadPage):
        more["total"] = page.total
    if not as_arrow:
        return Answer(encode({key: [_json_row(table, row) for row in rows], **more}))
    headers = tuple(
        (f"x-ackwise-{name}".encode(), f"{value}".encode()) for name, value in more.items() if value is not None
    )
    stream = arrow.Stream(_kinds(table))
    return Answer(stream.add(_columns(table, rows)) + stream.end(), content_type=ARROW, headers=headers)


def _rows(store: Store, table: NativeTable, query: q.Query) -> tuple[list[Row], Page[Any] | DeadPage]:
    """Rows of a page up to its limit or its bytes, and the last part that was read."""
    rows: list[Row] = []
    size = 0
    for page in _parts(store, query):
        part = table.rows(page, query)
        rows += part
        if isinstance(query, _BOUNDED) or page.next is None:
            break
        size += len(encode(part))
        if size >= PAGE_BYTES:
            break
    return rows, page


def _parts(store: Store, query: q.Query) -> Iterator[Page[Any] | DeadPage]:
    """The page that a query asks for, in parts of a few rows. A page of messages comes as one part."""
    if isinstance(query, _BOUNDED):
        yield ask_page(store, query)
        return
    left: int = query.limit  # type: ignore[attr-defined] # every list has a limit
    while left > 0:
        page = ask_page(store, msgspec.structs.replace(query, limit=min(left, READ_AT_ONCE)))
        yield page
        if page.next is None:
            return
        assert isinstance(page, Page)
        left -= len(page)
        query = msgspec.structs.replace(query, after=page.next)


def _next(query: q.Query, place: Any) -> Any:
    """Cursor of the next page. Cursors of messages are `lane.seq`, older than the other lists' cursors."""
    if isinstance(query, q.Browse):
        return None if place is None else f"{place[0]}.{place[1]}"
    return cursors.text(place)


async def _whole(call: Call, broker: AsyncBroker, table: NativeTable, query: q.Query, as_arrow: bool) -> Answer:
    """Streams all rows, page by page."""
    if as_arrow:
        return await streamed(call, _batches(broker, table, query), ARROW)

    def write_page(page: Any) -> bytes:
        return b",".join([encode(_json_row(table, row)) for row in table.rows(page, query)])

    return await streamed(call, array(pages(broker, query, write_page), b'{"rows":[', lambda: b'],"next":null}'))


async def _batches(broker: AsyncBroker, table: NativeTable, query: q.Query) -> AsyncIterator[bytes]:
    stream = arrow.Stream(_kinds(table))

    def batch(page: Any) -> bytes:
        return stream.add(_columns(table, table.rows(page, query)))

    async for piece in pages(broker, query, batch, rows=10 * ROWS):
        yield piece
    yield stream.end()


def _json_row(table: NativeTable, row: Row) -> Row:
    """A row as JSON shows it."""
    for name, kind in table.columns.items():
        if kind == "instant":
            row[name] = timestamps.text_or_none(row[name])
        elif kind == "payload":
            row[name] = msgspec.Raw(row[name])
    return row


def _kinds(table: NativeTable) -> dict[str, str]:
    return {name: "string" if kind == "payload" else kind for name, kind in table.columns.items()}


def _columns(table: NativeTable, rows: list[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in table.columns}
