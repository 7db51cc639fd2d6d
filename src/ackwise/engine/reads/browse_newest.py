"""Searches the messages of a queue, newest first. One call does a bounded amount of work and returns its place."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ackwise.core import queries as q
from ackwise.core import validation
from ackwise.core.filter_parser import parse_filter
from ackwise.core.filters import ContentFilter, Document
from ackwise.core.ids import LaneId
from ackwise.core.messages import Message
from ackwise.core.rows import BrowsedMessage, NewestPage
from ackwise.engine import catalog, segment_reads
from ackwise.engine.catalog import GroupRow
from ackwise.engine.cursors import seq_at
from ackwise.engine.ports import Row, Session
from ackwise.engine.reads.queues import ALWAYS, states_of
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.engine.segment import Segment, place, place_seq, to_end

MOST_LANES = 1000
"""Lanes that one call searches: those with the newest messages."""
MOST_SEGMENTS = 1000
MOST_SCANNED = 5000
"""Messages that one call compares."""
SCAN_BYTES = 16 << 20
"""Bytes of messages that one call reads. It reads at least one segment."""
MOST_VISITS = 2000
"""Maximum visits of a filter for one message. A message that needs more visits does not match."""
MOST_VISITS_IN_ALL = 500_000
_PAGE = 16
"""Segments of a lane that one statement lists."""
_SCHEDULED_PAGE = 500
_ANY = 1 << 61
"""A lane and a seq after all others."""

Place = tuple[int, int, int]
"""Instant, lane and seq of a message. A later place is newer."""


class _SegmentRange(NamedTuple):
    """Messages [lo, hi) of one segment."""

    stored_at: int
    lane: LaneId
    lo: int
    hi: int

    @property
    def top(self) -> Place:
        return self.stored_at, self.lane, self.hi - 1


@answers(q.BrowseNewest)
def browse_newest(snapshot: Snapshot, query: q.BrowseNewest) -> NewestPage:
    session = snapshot.session
    queue = catalog.queue(session, query.queue)
    group = catalog.group(session, queue, query.group) if query.group is not None else None
    part = catalog.part_id(session, queue, query.partition) if query.partition is not None else None
    if query.limit == 0:
        return NewestPage([], None, 0)
    if query.state == "scheduled":
        return _scheduled(snapshot, query, queue.id, part)
    return _Search(session, query, queue.id, group, part).run()


class _Search:
    """Walks over the segments of all lanes by their instants, newest first, and compares their messages."""

    def __init__(
        self, session: Session, query: q.BrowseNewest, queue: int, group: GroupRow | None, part: int | None
    ) -> None:
        self._session, self._query, self._group = session, query, group
        self._from = 0 if query.after_at is None else query.after_at
        until = validation.LAST_INSTANT if query.before_at is None else query.before_at
        self._below: Place = (until, _ANY, _ANY)
        """The place before which the search begins."""
        if query.after is not None:
            self._below = min(self._below, query.after)
        where = {"queue": queue, "part": part, "after_at": self._from, "before_at": self._below[0]}
        where["limit"] = MOST_LANES + 1
        if query.state is not None and group is not None:
            rows = session.rows("lanes_newest_in_state", {**where, "state": query.state, "grp": group.id})
        else:
            rows = session.rows("lanes_newest", where)
        self._left_out: Place | None = None
        """The newest place in the lanes that the search leaves out."""
        if len(rows) > MOST_LANES:
            self._left_out = (rows[-1][9], rows[-1][0], _ANY)
        self._lanes = {row[0]: _LaneWalk(session, row[0], start=row[5], top=row[8]) for row in rows[:MOST_LANES]}
        self._shown = {row[0]: (row[7], row[6], row[3]) for row in rows[:MOST_LANES]}
        self._heap = [_reversed((min(row[9], self._below[0]), row[0], _ANY)) for row in rows[:MOST_LANES]]
        heapq.heapify(self._heap)
        self._matcher = _Matcher(query)
        self._page = NewestPage([], None, 0)
        self._bytes = 0

    def run(self) -> NewestPage:
        page = self._page
        if self._left_out is not None and self._left_out >= self._below:
            page.incomplete, self._left_out = True, None
        for segments, messages in enumerate(self._ranges(), 1):
            if self._left_out is not None and messages.top < self._left_out:
                # The next message may be in a lane that the search leaves out.
                page.next = self._left_out
                return page
            page.next = self._compare(messages)
            if len(page.messages) >= self._query.limit or segments >= MOST_SEGMENTS or self._is_spent():
                return page
        page.next = None
        return page

    def _is_spent(self) -> bool:
        visits = self._matcher.visits >= MOST_VISITS_IN_ALL
        return visits or self._page.scanned >= MOST_SCANNED or self._bytes >= SCAN_BYTES

    def _ranges(self) -> Iterator[_SegmentRange]:
        """Ranges of all lanes below the search's place, newest first. Opens a lane only when it may be next."""
        opened: dict[int, _SegmentRange] = {}
        while self._heap:
            lane = -self._heap[0][1]
            messages = opened.pop(lane, None)
            if messages is not None:
                yield messages
            following = self._lanes[lane].following(self._below)
            if following is None or following.stored_at < self._from:
                heapq.heappop(self._heap)
            else:
                opened[lane] = following
                heapq.heapreplace(self._heap, _reversed(following.top))

    def _compare(self, messages: _SegmentRange) -> Place:
        """Add the matching messages of a range, newest first. Returns the place of the last compared message."""
        page, last = self._page, messages.lo
        for seq, message in self._in_state(messages):
            if self._matcher.takes(message):
                state = self._lanes[messages.lane].states(self._group, messages).get(seq)
                page.messages.append(BrowsedMessage(message, *self._shown[messages.lane], state))
                if len(page.messages) >= self._query.limit:
                    last = seq
                    break
        page.scanned += messages.hi - last
        return messages.stored_at, messages.lane, last

    def _in_state(self, messages: _SegmentRange) -> Iterator[tuple[int, Message]]:
        """Messages of a range that have the wanted state, newest first. Reads the segment only if there are some."""
        seqs = list(range(messages.hi - 1, messages.lo - 1, -1))
        if self._query.state is not None:
            states = self._lanes[messages.lane].states(self._group, messages)
            seqs = [seq for seq in seqs if states.get(seq) == self._query.state]
        if seqs:
            for segment in segment_reads.segments(self._session, messages.lane, messages.hi - 1, messages.hi):
                self._bytes += segment.size
                yield from ((seq, segment.message(seq)) for seq in seqs)


def _reversed(at: Place) -> Place:
    """The place for a heap, whose smallest entry comes first."""
    return -at[0], -at[1], -at[2]


class _LaneWalk:
    """The segments of one lane below a seq, newest first."""

    def __init__(self, session: Session, lane: int, *, start: int, top: int) -> None:
        self._session, self._lane, self._start, self._top = session, LaneId(lane), start, top
        self._ranges: Iterator[_SegmentRange] | None = None
        self._states: dict[int, str] = {}
        self._window = (0, 0)

    def following(self, below: Place) -> _SegmentRange | None:
        """The next range of messages before a place."""
        if self._ranges is None:
            self._ranges = self._walk(below)
        return next(self._ranges, None)

    def _walk(self, below: Place) -> Iterator[_SegmentRange]:
        top, newest = self._newest(below)
        rows = [newest] if newest is not None else []
        while rows:
            self._window = (rows[-1][1], top)
            for pos, first, stored_at in rows:
                lo, hi = max(first, self._start), min(place_seq(pos) + 1, top, self._end(stored_at, below))
                if lo < hi:
                    yield _SegmentRange(stored_at, self._lane, lo, hi)
            top = rows[-1][1]
            where = {"lo_pos": place(self._lane, self._start), "end_pos": place(self._lane, top), "limit": _PAGE}
            rows = self._session.rows("segment_places", where) if top > self._start else []

    def _newest(self, below: Place) -> tuple[int, tuple[int, int, int] | None]:
        """The seq below which the search begins, and the segment before it."""
        newest = self._segment_at(self._top - 1)
        if newest is None or newest[2] <= below[0]:
            return self._top, newest
        top = seq_at(self._session, self._lane, self._start, self._top, below[0] + 1)
        return top, self._segment_at(top - 1)

    def _end(self, stored_at: int, below: Place) -> int:
        """Upper bound, exclusive, of the seqs that are before a place. `stored_at` is their instant."""
        if (stored_at, self._lane) == below[:2]:
            return below[2]
        return _ANY if (stored_at, self._lane) < below[:2] else 0

    def _segment_at(self, seq: int) -> tuple[int, int, int] | None:
        """Position, first seq and instant of the segment of a message."""
        row = self._session.row("segment_at", to_end(self._lane, seq)) if seq >= self._start else None
        return None if row is None else (row[0], row[1], row[2])

    def states(self, group: GroupRow | None, messages: _SegmentRange) -> dict[int, str]:
        """States of the messages of a range. One read serves all ranges that one statement lists."""
        if group is not None and messages.lo not in self._states:
            lo, hi = self._window
            self._states = states_of(self._session, group, self._lane, max(self._start, lo), hi)
        return self._states


class _Matcher:
    """Compares the content of a message with the filters of a query."""

    def __init__(self, query: q.BrowseNewest) -> None:
        self._headers, self._text = query.headers.items(), query.transaction_text
        self._filter = None if query.filter is None else _parsed(query.filter)
        self.visits = 0

    def takes(self, message: Message) -> bool:
        if self._text is not None and self._text not in message.transaction_id:
            return False
        if self._headers and not self._headers <= message.headers.items():
            return False
        if self._filter is None:
            return True
        document = Document(message.payload)
        taken = self._filter.takes(document, MOST_VISITS) is True
        self.visits += document.visits
        return taken


@lru_cache(maxsize=64)
def _parsed(text: str) -> ContentFilter:
    return parse_filter(text)


def _scheduled(snapshot: Snapshot, query: q.BrowseNewest, queue: int, part: int | None) -> NewestPage:
    """Scheduled messages, newest push first. Their places have the lane 0 and the message's number as seq."""
    matcher, page, size = _Matcher(query), NewestPage([], None, 0), 0
    for no, prio, due_at, created_at, uuid, name in _scheduled_rows(snapshot.session, query, queue, part):
        page.scanned += 1
        message, read = _scheduled_message(snapshot.session, query, no, created_at)
        size += read
        if message is not None and matcher.takes(message):
            shown = BrowsedMessage(message, name, uuid, prio, "scheduled", snapshot.shown(due_at))
            page.messages.append(shown)
        spent = page.scanned >= MOST_SCANNED or size >= SCAN_BYTES or matcher.visits >= MOST_VISITS_IN_ALL
        if spent or len(page.messages) >= query.limit:
            page.next = (created_at, 0, no)
            return page
    return page


def _scheduled_rows(session: Session, query: q.BrowseNewest, queue: int, part: int | None) -> Iterator[Row]:
    below = ALWAYS[1] if query.after is None else query.after[2]
    while True:
        where = {"queue": queue, "part": part, "below": below, "limit": _SCHEDULED_PAGE}
        rows = session.rows("scheduled_newest", where)
        yield from rows
        if len(rows) < _SCHEDULED_PAGE:
            return
        below = rows[-1][0]


def _scheduled_message(session: Session, query: q.BrowseNewest, no: int, created_at: int) -> tuple[Message | None, int]:
    """A scheduled message of the wanted time range, and the bytes that were read for it."""
    until = ALWAYS[1] if query.before_at is None else query.before_at
    if not (query.after_at or 0) <= created_at <= until:
        return None, 0
    row = session.row("scheduled_by_no", {"no": no})
    return (None, 0) if row is None else (Segment(0, 0, created_at, row[6]).message(0), len(row[6]))
