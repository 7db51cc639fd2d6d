"""Streamed lists: read, encoded and sent page by page, so that memory holds one page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core.rows import DeadPage, Page
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import JSON, Answer, StreamedAnswer, encode
from ackwise.store.port import Store

T = TypeVar("T")
ROWS = 500
SMALL_PAGE = 1 << 20
"""Bytes that a page without messages may have."""
_NO_OFFSET = {"offset": 0}
WHOLE_BELOW = 256 << 10
"""The server sends an answer below this size at once, with its length."""


async def pages(
    broker: AsyncBroker, query: q.Query, work: Callable[[Any], T], *, rows: int = ROWS, most: int | None = None
) -> AsyncIterator[T]:
    """Results of `work`, computed in the helper thread that reads the page. At most `most` rows in all."""
    left = most
    while left is None or left > 0:
        query = msgspec.structs.replace(query, limit=rows if left is None else min(rows, left))
        result, count, after = await broker.in_thread(_page, broker.store, query, work)
        yield result
        if after is None:
            return
        query = msgspec.structs.replace(query, after=after, **_NO_OFFSET if hasattr(query, "offset") else {})
        left = None if left is None else left - count


def _page(store: Store, query: q.Query, work: Callable[[Any], T]) -> tuple[T, int, Any]:
    page = ask_page(store, query)
    rows = page.letters if isinstance(page, DeadPage) else page
    return work(page), len(rows), page.next


def ask_page(store: Store, query: q.Query) -> Page[Any] | DeadPage:
    """The page that a list query answers."""
    page = store.ask(query)
    assert isinstance(page, Page | DeadPage)
    return page


def joined(show: Callable[[Any], object]) -> Callable[[Iterable[Any]], bytes]:
    """Rows as JSON, separated by commas."""
    return lambda rows: b",".join([encode(show(row)) for row in rows])


async def array(
    pieces: AsyncIterator[bytes], head: bytes = b"[", tail: Callable[[], bytes] = lambda: b"]"
) -> AsyncIterator[bytes]:
    """Pieces of a JSON array between `head` and `tail`. `tail` is called after the last piece."""
    before = head
    async for piece in pieces:
        if piece:
            yield before + piece
            before = b","
    yield (head if before == head else b"") + tail()


async def streamed(call: Call, pieces: AsyncIterator[bytes], content_type: bytes = JSON) -> Answer:
    """Pieces as one answer. Reads the first pieces before the answer begins, so that an error keeps its status.

    Reserves answer memory for one page, unless the route has done so.
    """
    if call.pending is None:
        await call.reserve(SMALL_PAGE)
    begun: list[bytes] = []
    size = 0
    async for piece in pieces:
        begun.append(piece)
        size += len(piece)
        if size > WHOLE_BELOW:
            return StreamedAnswer(b"".join(begun), rest=pieces, content_type=content_type)
    return Answer(b"".join(begun), content_type=content_type)


async def stream_list(
    call: Call,
    broker: AsyncBroker,
    query: q.Query,
    name: str,
    show: Callable[[Any], object],
    *,
    rows: int = ROWS,
) -> Answer:
    """`{"<name>": […]}` with all rows of a list."""
    pieces = pages(broker, query, joined(show), rows=rows)
    return await streamed(call, array(pieces, b'{"%b":[' % name.encode(), lambda: b"]}"))
