"""Lists of any length: read, encoded and sent page by page, so that memory holds one page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.broker.handing import answer
from ackwise.core import queries as q
from ackwise.dialects.http import JSON, Answer, Call, Streamed, encode
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
        made, count, after = await broker.in_thread(_page, broker.store, query, work)
        yield made
        if after is None:
            return
        query = msgspec.structs.replace(query, after=after, **_NO_OFFSET if isinstance(query, q.ListDead) else {})
        left = None if left is None else left - count


def _page(store: Store, query: q.Query, work: Callable[[Any], T]) -> tuple[T, int, Any]:
    page = answer(store, query)
    rows = page.letters if isinstance(page, q.DeadPage) else page
    return work(page), len(rows), page.next


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
    """Pieces as one answer. The first pieces are read before the answer begins, so that a refusal keeps its status.

    The answer reserves memory for the page on its way, unless its route has done so.
    """
    if call.handover is None:
        await call.reserve(SMALL_PAGE)
    begun: list[bytes] = []
    size = 0
    async for piece in pieces:
        begun.append(piece)
        size += len(piece)
        if size > WHOLE_BELOW:
            return Streamed(b"".join(begun), pieces, content_type=content_type)
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
