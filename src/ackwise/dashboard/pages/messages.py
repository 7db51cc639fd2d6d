"""Messages: those of one queue, newest first, with filters. Reading changes no message."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from ackwise.core import validation
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.queries import BrowseNewest, ListGroups
from ackwise.core.rows import BrowsedMessage, GroupStats, NewestPage
from ackwise.dashboard import filters, payload_views
from ackwise.dashboard.filters import group_name
from ackwise.dashboard.pages.message import near_text
from ackwise.dashboard.pages.names import group_names, queue_names
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get
from ackwise.wire.http_status import status_of

MOST_ROWS = 50
MOST_GROUPS = 3
"""Groups whose states each row shows, if the filter names no group."""
LONGEST_FILTER = 4096
SCHEDULED = "scheduled"
STATES = (("", "any state"), *((state, state) for state in BrowseNewest.STATES))
_FIELDS = ("queue", "partition", "group", "state", "since", "until", "header", "filter", "transaction")


class MessageRow(msgspec.Struct, frozen=True):
    """A message in the list. `states` are those of the groups in the heading."""

    transaction_id: str
    partition: str
    partition_id: str
    priority: int
    seq: int
    at: str | None
    created_at: int
    size: int
    preview: str
    states: list[str | None]


class Listing(NamedTuple):
    """A page of messages. `groups` are the groups whose states it shows, `note` says how the page chose them."""

    rows: list[MessageRow]
    groups: list[str]
    next: str | None
    scanned: int
    incomplete: bool
    note: str


async def show(page: PageRequest) -> Response:
    given = {field: page.query.get(field, "") for field in _FIELDS}
    problem, status = "", 200
    listing: Listing | None = None
    if given["queue"]:
        try:
            query = _query(page, given)
            listing = await page.cached(("messages", *sorted(page.query.items())), lambda: _read(page, query))
        except AckwiseError as error:
            problem, status = error.message, status_of(error)
    return page.render(
        "messages.html.j2", status, listing=listing, given=given, problem=problem, states=STATES,
        queues=await queue_names(page), groups=await group_names(page),
        filtered=any(value for field, value in given.items() if field != "queue"),
    )  # fmt: skip


def _query(page: PageRequest, given: dict[str, str]) -> BrowseNewest:
    """The search of the filters."""
    now = page.broker.wall()
    if len(given["filter"]) > LONGEST_FILTER:
        raise BadInput(f"filter is longer than {LONGEST_FILTER} characters")
    if given["state"]:
        validation.one_of(given["state"], "state", BrowseNewest.STATES)
    return BrowseNewest(
        queue=given["queue"],
        partition=given["partition"] or None,
        group=filters.group(page),
        state=given["state"] or None,
        after_at=filters.instant(given["since"], "since", now),
        before_at=filters.instant(given["until"], "until", now),
        headers=_header(given["header"]),
        filter=given["filter"].strip() or None,
        transaction_text=given["transaction"].strip() or None,
        after=filters.place(page, tuple[int, int, int]),
        limit=MOST_ROWS,
    )


def _header(text: str) -> dict[str, str]:
    """A header out of `name=value`."""
    if not text.strip():
        return {}
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise BadInput(f"write the header as name=value, not {text!r:.80}")
    return {name.strip(): value.strip()}


async def _read(page: PageRequest, query: BrowseNewest) -> Listing:
    groups, note = await _groups(page, query)
    if query.state == SCHEDULED:
        return _listing([await page.ask(query)], [], note, scheduled=True)
    if query.state is not None and not groups:
        if query.state != "ready":
            return Listing([], [], None, 0, False, note)
        query.state = None
    # Each search reads the state of one group.
    searches = [msgspec.structs.replace(query, group=group) for group in groups] or [query]
    pages = await asyncio.gather(*(page.ask(search) for search in searches))
    return _listing(pages, groups, note)


def _listing(pages: list[NewestPage], groups: list[str], note: str, *, scheduled: bool = False) -> Listing:
    """The messages of the first search, with the states of all."""
    states = [{(row.message.lane, row.message.seq): row.state for row in result.messages} for result in pages]
    first = pages[0]
    rows = [
        _row(row, [known.get((row.message.lane, row.message.seq)) for known in states], scheduled)
        for row in first.messages
    ]
    return Listing(rows, groups, filters.place_text(first.next), first.scanned, first.incomplete, note)


async def _groups(page: PageRequest, query: BrowseNewest) -> tuple[list[str], str]:
    """The groups whose states the page shows, those with the largest lag first, and a note about the choice."""
    if query.group is not None:
        return [query.group], ""
    key = ("groups_of", query.queue)
    rows: list[GroupStats] = await page.cached(key, ListGroups(queue=query.queue, limit=100), 10.0)
    names = [row.group for row in sorted(rows, key=lambda row: (-row.lag, row.group))]
    if query.state in (None, SCHEDULED):
        more = len(names) - MOST_GROUPS
        return names[:MOST_GROUPS], f"{more:,} more groups; choose a group to see its states." if more > 0 else ""
    if not names:
        return [], "The queue has no groups: all of its messages are ready."
    if len(names) > 1:
        return names[:1], f"The list shows states for group {group_name(names[0])}, which is furthest behind."
    return names, ""


def _row(row: BrowsedMessage, states: list[str | None], scheduled: bool) -> MessageRow:
    message = row.message
    return MessageRow(
        message.transaction_id, row.partition, row.partition_id, row.priority, message.seq,
        None if scheduled else near_text(message.lane, message.seq), message.created_at,
        len(message.payload), payload_views.preview(message.payload), states,
    )  # fmt: skip


ROUTES = (get("/messages", show),)
