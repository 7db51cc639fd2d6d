"""`POST /v1/read`: stored messages by their place, as Arrow. So Spark's workers read what was claimed for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core.native import ranges
from ackwise.dialects.http import ARROW, Answer, Call, Route
from ackwise.server.native import arrow

_BODY = msgspec.json.Decoder(ranges.ReadBody)


def routes(broker: AsyncBroker) -> list[Route]:
    async def read(call: Call) -> Answer:
        body = await call.read(_BODY)
        arrow.needed_to_write()
        # Loaded when asked for: pyarrow and numpy are an extra.
        pages = import_module("ackwise.columns.pages")
        ranges.check(body, tuple(pages.STORED))
        call.hand_over()
        answered: Answer = await broker.in_thread(_answer, pages, broker.store.read, body)
        return answered

    return [Route("POST", "/v1/read", read)]


def _answer(pages: Any, read: Any, body: ranges.ReadBody) -> Answer:
    return Answer(pages.stream(pages.Stored(read).pages(body.ranges, body.columns), body.columns), content_type=ARROW)
