"""`POST /v1/read`: stored messages by lane and sequence number, as Arrow. Spark executors read their claims here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from importlib import import_module

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import ARROW, Answer, Route
from ackwise.protocols.native import arrow
from ackwise.protocols.streamed_lists import streamed
from ackwise.wire import claim

_BODY = msgspec.json.Decoder(claim.ReadBody)


def routes(broker: AsyncBroker) -> list[Route]:
    async def read(call: Call) -> Answer:
        body = await call.read(_BODY)
        arrow.needed_to_write()
        # Imported here because pyarrow and numpy are an extra.
        pages = import_module("ackwise.arrow.message_pages")
        claim.check(body, tuple(pages.STORED))
        await call.reserve(pages.PAGE_BYTES)
        read_pages = pages.StorePageReader(broker.store).pages(body.ranges, body.columns)
        return await streamed(call, _pieces(broker, pages.stream(read_pages, body.columns)), ARROW)

    return [Route("POST", "/v1/read", read)]


async def _pieces(broker: AsyncBroker, stream: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Pieces of the stream. A thread reads one page at a time, so that memory holds one page."""
    while (piece := await broker.in_thread(next, stream, None)) is not None:
        yield piece
