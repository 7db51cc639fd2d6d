"""Searches the messages of a queue, newest first. One call does a bounded amount of work and says where it stopped."""

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
from ackwise.engine.ports import Session
from ackwise.engine.reads.queues import ALWAYS, states_of
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.engine.segment import Segment, place, place_seq, to_end

MOST_LANES = 1000
"""Lanes that one call looks at: those with the newest messages."""
MOST_SEGMENTS = 1000
MOST_SCANNED = 5000
"""Messages that one call compares."""
SCAN_BYTES = 16 << 20
"""Bytes of messages that one call reads. It reads at least one segment."""
MOST_VISITS = 2000
"""Visits of a filter for one message. A filter takes no message that needs more."""
MOST_VISITS_IN_ALL = 500_000
_PAGE = 16
"""Segments of a lane that one statement finds."""
_SCHEDULED_PAGE = 500
_ANY = 1 << 61
"""A lane and a seq after all others."""

Place = tuple[int, int, int]
"""Instant, lane and seq of a message. A later place is newer."""


class _Range(NamedTuple):
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
        """The newest place in the lanes that the search does not see."""
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
        for segments, found in enumerate(self._ranges(), 1):
            if self._left_out is not None and found.top < self._left_out:
                # The next message may be in a lane that the search does not see.
                page.next = self._left_out
                return page
            page.next = self._compare(found)
            if len(page.messages) >= self._query.limit or segments >= MOST_SEGMENTS or self._is_spent():
                return page
        page.next = None
        return page

    def _is_spent(self) -> bool:
        visits = self._matcher.visits >= MOST_VISITS_IN_ALL
        return visits or self._page.scanned >= MOST_SCANNED or self._bytes >= SCAN_BYTES

    def _ranges(self) -> Iterator[_Range]:
        """Ranges of all lanes below the search's place, newest first. Opens a lane only when it may be next."""
        opened: dict[int, _Range] = {}
        while self._heap:
            lane = -self._heap[0][1]
            found = opened.pop(lane, None)
            if found is not None:
                yield found
            following = self._lanes[lane].following(self._below)
            if following is None or following.stored_at < self._from:
                heapq.heappop(self._heap)
            else:
                opened[lane] = following
                heapq.heapreplace(self._heap, _reversed(following.top))

    def _compare(self, found: _Range) -> Place:
        """Add the matching messages of a range, newest first. Returns the place of the last compared message."""
        page, last = self._page, found.lo
        for seq, message in self._in_state(found):
            if self._matcher.takes(message):
                state = self._lanes[found.lane].states(self._group, found).get(seq)
                page.messages.append(BrowsedMessage(message, *self._shown[found.lane], state))
                if len(page.messages) >= self._query.limit:
                    last = seq
                    break
        page.scanned += found.hi - last
        return found.stored_at, found.lane, last

    def _in_state(self, found: _Range) -> Iterator[tuple[int, Message]]:
        """Messages of a range that have the wanted state, newest first. Reads the segment only if there are some."""
        seqs = list(range(found.hi - 1, found.lo - 1, -1))
        if self._query.state is not None:
            states = self._lanes[found.lane].states(self._group, found)
            seqs = [seq for seq in seqs if states.get(seq) == self._query.state]
        if seqs:
            for segment in segment_reads.segments(self._session, found.lane, found.hi - 1, found.hi):
                self._bytes += segment.size
                yield from ((seq, segment.message(seq)) for seq in seqs)


def _reversed(at: Place) -> Place:
    """The place for a heap, whose smallest entry comes first."""
    return -at[0], -at[1], -at[2]


class _LaneWalk:
    """The segments of one lane below a seq, newest first."""

    def __init__(self, session: Session, lane: int, *, start: int, top: int) -> None:
        self._session, self._lane, self._start, self._top = session, LaneId(lane), start, top
        self._ranges: Iterator[_Range] | None = None
        self._states: dict[int, str] = {}
        self._window = (0, 0)

    def following(self, below: Place) -> _Range | None:
        """The next range of messages before a place."""
        if self._ranges is None:
            self._ranges = self._walk(below)
        return next(self._ranges, None)

    def _walk(self, below: Place) -> Iterator[_Range]:
        top = self._top
        newest = self._segment_at(top - 1)
        if newest is not None and newest[2] > below[0]:
            top = seq_at(self._session, self._lane, self._start, top, below[0] + 1)
            newest = self._segment_at(top - 1)
        rows = [newest] if newest is not None and top > self._start else []
        while rows:
            self._window = (rows[-1][1], top)
            for pos, first, stored_at in rows:
                hi = min(place_seq(pos) + 1, top)
                if (stored_at, self._lane) >= below[:2]:
                    hi = min(hi, below[2]) if (stored_at, self._lane) == below[:2] else 0
                if hi > max(first, self._start):
                    yield _Range(stored_at, self._lane, max(first, self._start), hi)
            top = rows[-1][1]
            where = {"lo_pos": place(self._lane, self._start), "end_pos": place(self._lane, top), "limit": _PAGE}
            rows = self._session.rows("segment_places", where) if top > self._start else []

    def _segment_at(self, seq: int) -> tuple[int, int, int] | None:
        """Position, first seq and instant of the segment of a message."""
        row = self._session.row("segment_at", to_end(self._lane, seq)) if seq >= self._start else None
        return None if row is None else (row[0], row[1], row[2])

    def states(self, group: GroupRow | None, found: _Range) -> dict[int, str]:
        """States of the messages of a range. One look serves all ranges that one statement found."""
        if group is not None and found.lo not in self._states:
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
    """Scheduled messages, the one pushed last first. Their places have the lane 0 and their number as seq."""
    session, matcher, page, size = snapshot.session, _Matcher(query), NewestPage([], None, 0), 0
    from_at = 0 if query.after_at is None else query.after_at
    until = ALWAYS[1] if query.before_at is None else query.before_at
    below = ALWAYS[1] if query.after is None else query.after[2]
    while True:
        where = {"queue": queue, "part": part, "below": below, "limit": _SCHEDULED_PAGE}
        rows = session.rows("scheduled_newest", where)
        for below, prio, due_at, created_at, uuid, name in rows:
            page.scanned += 1
            stored = session.row("scheduled_by_no", {"no": below}) if from_at <= created_at <= until else None
            if stored is not None:
                size += len(stored[6])
                message = Segment(0, 0, created_at, stored[6]).message(0)
                if matcher.takes(message):
                    shown = BrowsedMessage(message, name, uuid, prio, "scheduled", snapshot.shown(due_at))
                    page.messages.append(shown)
            spent = page.scanned >= MOST_SCANNED or size >= SCAN_BYTES or matcher.visits >= MOST_VISITS_IN_ALL
            if spent or len(page.messages) >= query.limit:
                page.next = (created_at, 0, below)
                return page
        if len(rows) < _SCHEDULED_PAGE:
            return page
