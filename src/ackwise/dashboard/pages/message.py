"""One message: all of its fields, its payload, its state in each group, and the timeline of its deliveries."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.responses import Response

from ackwise.core.errors import BadInput
from ackwise.core.queries import FindMessage
from ackwise.core.rows import FoundMessage, GroupView
from ackwise.dashboard import payload_views
from ackwise.dashboard.pages.dead_letters import history_line, payload_response
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get


class ShownGroup(msgspec.Struct, frozen=True):
    """State of the message in a group, with its ended deliveries and its dead letter."""

    view: GroupView
    history: list[dict[str, Any]]
    letter: str | None


class ShownMessage(msgspec.Struct, frozen=True):
    """A message as the page shows it, without its whole payload: open pages share it."""

    queue: str
    partition: str
    priority: int
    id: str
    transaction_id: str
    lane: int
    seq: int
    created_at: int
    due_at: int | None
    headers: dict[str, str]
    content_type: str
    view: payload_views.PayloadView
    groups: list[ShownGroup]
    letters: int


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
    partition_id, transaction_id = page.params["partition_id"], page.params["transaction_id"]
    shown = await page.cached(("message", partition_id, transaction_id, page.query.get("at")), lambda: _read(page))
    # With its place the page finds the message again without a search.
    place = near_text(shown.lane, shown.seq) if shown.due_at is None else None
    return page.render(
        "message.html.j2", message=shown, partition_id=partition_id,
        own=page.link("messages", partition_id, transaction_id),
        here_again=page.link("messages", partition_id, transaction_id, at=place),
    )  # fmt: skip


async def _read(page: PageRequest) -> ShownMessage:
    found = await find(page)
    message = found.message
    letters = {letter.group: letter.id for letter in reversed(found.dead)}
    return ShownMessage(
        queue=found.queue.name,
        partition=found.partition,
        priority=found.priority,
        id=message.id,
        transaction_id=message.transaction_id,
        lane=message.lane,
        seq=message.seq,
        created_at=message.created_at,
        due_at=found.due_at,
        headers=message.headers,
        content_type=message.content_type,
        view=payload_views.view(message.payload, message.content_type),
        groups=[
            ShownGroup(view, [history_line(line) for line in view.history], letters.get(view.group))
            for view in found.groups
        ],
        letters=len(found.dead),
    )


async def download(page: PageRequest) -> Response:
    message = (await find(page)).message
    return payload_response(message.payload, message.id)


ROUTES = (
    get("/messages/{partition_id}/{transaction_id}", show),
    get("/messages/{partition_id}/{transaction_id}/payload", download),
)
