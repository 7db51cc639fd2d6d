"""One message: all of its fields, its payload, its state in each group, and the timeline of its deliveries."""

from __future__ import annotations

import re

import msgspec
from starlette.responses import Response

from ackwise.core.errors import BadInput
from ackwise.core.queries import MessageTimeline
from ackwise.core.rows import GroupTimeline, Timeline, TraceRow
from ackwise.dashboard import payload_views
from ackwise.dashboard.pages.dead_letters import payload_response
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get


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
    groups: list[GroupTimeline]
    traces: list[TraceRow]


def near_of(text: str | None) -> tuple[int, int] | None:
    """The lane and the seq at which a list saw the message: `12-345`."""
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,18})-(\d{1,18})", text, re.ASCII)
    if match is None:
        raise BadInput("at must be the place of a message, such as 12-345")
    return int(match[1]), int(match[2])


def near_text(lane: int, seq: int) -> str:
    return f"{lane}-{seq}"


async def find(page: PageRequest) -> Timeline:
    """The message of the path. With its place the search is short. Without it, an old message costs a scan."""
    partition_id, transaction_id = page.params["partition_id"], page.params["transaction_id"]
    near = near_of(page.query.get("at"))
    if near is not None:
        timeline = await page.ask(MessageTimeline(lane=near[0], seq=near[1]))
        place = (timeline.found.partition_id, timeline.found.message.transaction_id)
        if place == (partition_id, transaction_id):
            return timeline
    return await page.ask(MessageTimeline(partition_id=partition_id, transaction_id=transaction_id))


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
    timeline = await find(page)
    located, message = timeline.found, timeline.found.message
    return ShownMessage(
        queue=located.queue.name,
        partition=located.partition,
        priority=located.priority,
        id=message.id,
        transaction_id=message.transaction_id,
        lane=message.lane,
        seq=message.seq,
        created_at=message.created_at,
        due_at=located.due_at,
        headers=message.headers,
        content_type=message.content_type,
        view=payload_views.view(message.payload, message.content_type),
        groups=timeline.groups,
        traces=timeline.traces,
    )


async def download(page: PageRequest) -> Response:
    message = (await find(page)).found.message
    return payload_response(message.payload, message.id)


ROUTES = (
    get("/messages/{partition_id}/{transaction_id}", show),
    get("/messages/{partition_id}/{transaction_id}/payload", download),
)
