"""Dead letters: counted by kind of error, listed newest first, and one letter with its history."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from ackwise.core.error_kinds import error_kind
from ackwise.core.errors import AckwiseError, UnknownDeadLetter
from ackwise.core.queries import CountDeadByTime, ListDead, ListDeadKinds
from ackwise.core.rows import DeadKind, DeadLetter, Page, TimelineEvent, TimeSeries
from ackwise.core.settlement import Reason
from ackwise.core.validation import MICROS
from ackwise.dashboard import filters, payload_views
from ackwise.dashboard.dead_selection import DeadSelection, selection
from ackwise.dashboard.pages.names import group_names, queue_names
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import get
from ackwise.wire import charts, timestamps
from ackwise.wire.http_status import status_of

MOST_KINDS = 20
MOST_ROWS = 50
BUCKETS = 30
"""Columns of a kind's chart."""
INTERVAL = 5.0
"""Seconds for which counts are fresh: they read every matching letter."""
DAY = 86_400 * MICROS
LONGEST_CHART = 30 * DAY
PERIODS = (("", "any time"), ("1h", "last hour"), ("24h", "last day"), ("7d", "last week"), ("30d", "last 30 days"))


class LetterRow(msgspec.Struct, frozen=True):
    """A dead letter in the list."""

    id: str
    queue: str
    group: str
    partition: str
    partition_id: str
    transaction_id: str
    reason: str
    error: str
    error_type: str
    kind: str
    failures: int
    deliveries: int
    preview: str
    dead_at: int


class ShownKind(msgspec.Struct, frozen=True):
    """A kind of error with its chart."""

    kind: DeadKind
    chart: str


class Listing(msgspec.Struct):
    """Content of the page: kinds with their charts, and one page of letters."""

    kinds: list[ShownKind]
    next_kind: str | None
    rows: list[LetterRow]
    total: int
    next: str | None


async def show_list(page: PageRequest) -> Response:
    problem, status = "", 200
    chosen, listing = DeadSelection(), Listing([], None, [], 0, None)
    try:
        chosen = selection(page.query, page.broker.wall())
        after = filters.place(page, tuple[int, int])
        after_kind = filters.place(page, tuple[int, str, str], "kinds_after")
        key = ("dead", *sorted(page.query.items()))
        listing = await page.cached(key, lambda: _read(page, chosen, after, after_kind), INTERVAL)
    except AckwiseError as error:
        problem, status = error.message, status_of(error)
    reasons = [("", "any reason"), *((reason.value, reason.value.replace("_", " ")) for reason in Reason)]
    return page.render(
        "dead_letters.html.j2", status, listing=listing, chosen=chosen, given=page.query, problem=problem,
        reasons=reasons, keywords=chosen.keywords(), queues=await queue_names(page), groups=await group_names(page),
        jobs=page.dashboard.jobs.newest(5), most_rows=MOST_ROWS,
    )  # fmt: skip


async def _read(
    page: PageRequest, chosen: DeadSelection, after: tuple[int, int] | None, after_kind: tuple[int, str, str] | None
) -> Listing:
    letters = await page.ask(chosen.listing(MOST_ROWS, after))
    kinds: list[DeadKind] = Page()
    if after is None and chosen.error_kind is None:
        kinds = await page.ask(
            ListDeadKinds(
                queue=chosen.queue, group=chosen.group, partition=chosen.partition, reason=chosen.reason,
                after_at=chosen.after_at, before_at=chosen.before_at, after=after_kind, limit=MOST_KINDS,
            )
        )  # fmt: skip
    start, end = _chart_period(page, chosen, kinds)
    drawn = await asyncio.gather(*(_chart(page, chosen, kind, start, end) for kind in kinds))
    shown = [ShownKind(kind, chart) for kind, chart in zip(kinds, drawn, strict=True)]
    next_kind = kinds.next if isinstance(kinds, Page) else None
    return Listing(
        shown, filters.place_text(next_kind), [_row(letter) for letter in letters.letters], letters.total,
        filters.place_text(letters.next),
    )  # fmt: skip


def _chart_period(page: PageRequest, chosen: DeadSelection, kinds: list[DeadKind]) -> tuple[int, int]:
    """The period of all charts: that of the filter, or from the first letter on."""
    now = page.broker.wall()
    end = min(now, chosen.before_at) + 1 if chosen.before_at is not None else now + 1
    first = min((kind.first_at for kind in kinds), default=end - DAY)
    start = first if chosen.after_at is None else chosen.after_at
    return min(max(start, end - LONGEST_CHART), end - BUCKETS * MICROS), end


async def _chart(page: PageRequest, chosen: DeadSelection, kind: DeadKind, start: int, end: int) -> str:
    series: TimeSeries = await page.ask(
        CountDeadByTime(
            queue=kind.queue, kind=kind.kind, group=chosen.group, partition=chosen.partition, reason=chosen.reason,
            after_at=start, before_at=end, buckets=BUCKETS,
        )
    )  # fmt: skip
    counts = [sum(column) for column in zip(*series.counts.values(), strict=True)] or [0] * BUCKETS
    first, last = (timestamps.text(at)[:16].replace("T", " ") for at in (start, end))
    return charts.spark(f"{kind.count:,} dead letters from {first} to {last} UTC", counts)


def _row(letter: DeadLetter) -> LetterRow:
    return LetterRow(
        letter.id, letter.queue, letter.group, letter.partition, letter.partition_id, letter.transaction_id,
        letter.reason, letter.error, letter.error_type, letter.kind, letter.failures, letter.deliveries,
        payload_views.preview(letter.payload), letter.dead_at,
    )  # fmt: skip


async def letter_of(page: PageRequest) -> DeadLetter:
    """The letter that the path names."""
    id = page.params["id"]
    letters = (await page.ask(ListDead(ids=[id[:64]], limit=1))).letters
    if not letters:
        raise UnknownDeadLetter(f"there is no dead letter {id!r:.80}; it was redriven or purged, or the id is wrong")
    return letters[0]


async def show(page: PageRequest) -> Response:
    letter = await letter_of(page)
    return page.render(
        "dead_letter.html.j2", letter=letter, kind=letter.kind or error_kind(letter.error),
        view=payload_views.view(letter.payload, letter.content_type),
        history=[_event(line) for line in letter.history],
    )  # fmt: skip


def _event(line: Mapping[str, Any]) -> TimelineEvent:
    """A line of a letter's history."""
    return TimelineEvent(
        line["at"], line["event"], line.get("owner"), line.get("error") or None, line.get("error_type"),
        line.get("trace"),
    )  # fmt: skip


async def download(page: PageRequest) -> Response:
    letter = await letter_of(page)
    return payload_response(letter.payload, letter.message_id)


def payload_response(payload: bytes, message_id: str) -> Response:
    """The raw payload as a download. The browser must not show it as a page."""
    headers = {"content-disposition": f'attachment; filename="{message_id}.bin"'}
    return Response(payload, media_type="application/octet-stream", headers=headers)


ROUTES = (
    get("/dead-letters", show_list),
    get("/dead-letters/{id}", show),
    get("/dead-letters/{id}/payload", download),
)
