"""One message: all of its fields, its payload, its state in each group, and the timeline of its deliveries."""

from __future__ import annotations

import re

import msgspec
from starlette.responses import Response

from ackwise.core.errors import BadInput
from ackwise.core.queries import FindMessage
from ackwise.core.rows import FoundMessage
from ackwise.dashboard import payload_views
from ackwise.dashboard.pages.dead_letters import payload_response
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get


class ShownMessage(msgspec.Struct, frozen=True):
    """A message as the page shows it, without its whole payload: open pages share it."""

    found: FoundMessage
    view: payload_views.PayloadView
    headers: dict[str, str]


def near_of(text: str | None) -> tuple[int, int] | None:
    """The lane and the seq at which a list saw the message: `12-345`."""
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,18})-(\d{1,18})", text, re.ASCII)
    if match is None:
        raise BadInput("at is not the place of a message")
    return int(match[1]), int(match[2])


def near_text(lane: int, seq: int) -> str:
    return f"{lane}-{seq}"


async def find(page: PageRequest) -> FoundMessage:
    query = FindMessage(
        partition_id=page.params["partition_id"], transaction_id=page.params["transaction_id"],
        near=near_of(page.query.get("at")),
    )  # fmt: skip
    return await page.ask(query)


async def show(page: PageRequest) -> Response:
    key = ("message", page.params["partition_id"], page.params["transaction_id"], page.query.get("at"))
    shown = await page.cached(key, lambda: _read(page))
    message = shown.found.message
    at = near_text(message.lane, message.seq) if shown.found.due_at is None else None
    return page.render("message.html.j2", found=shown.found, message=message, shown=shown, at=at)


async def _read(page: PageRequest) -> ShownMessage:
    found = await find(page)
    message = found.message
    return ShownMessage(found, payload_views.view(message.payload, message.content_type), message.headers)


async def download(page: PageRequest) -> Response:
    message = (await find(page)).message
    return payload_response(message.payload, message.id)


ROUTES = (
    get("/messages/{partition_id}/{transaction_id}", show),
    get("/messages/{partition_id}/{transaction_id}/payload", download),
)
