"""The newest messages over all queues, and sums of the ledger."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from ackwise.core import queen_queries as q
from ackwise.core import validation
from ackwise.core.ids import LaneId
from ackwise.core.lane_range import LaneRange
from ackwise.core.message_status import message_status
from ackwise.core.messages import Message
from ackwise.core.queries import LedgerSeries
from ackwise.core.rows import FoundMessage, GroupView, LedgerSum, LedgerTotal, NewestMessages, Page, TimeSeries
from ackwise.core.spans import Lane
from ackwise.engine import catalog, segment_reads
from ackwise.engine.catalog import GroupRow, QueueRow
from ackwise.engine.cursors import seq_at
from ackwise.engine.ports import Session
from ackwise.engine.reads import queues
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.engine.segment import place, place_seq

MOST_LANES = 1000
"""Lanes with the newest messages that a list visits if it filters."""
MOST_SCANNED = 10_000
"""Messages whose status a list looks at."""
_SEGMENTS = 16
_CHUNK = 64
_MINUTE = 60 * validation.MICROS


class _LaneView(NamedTuple):
    lane: Lane
    partition_id: str
    partition: str


@answers(q.ListNewest)
def list_newest(snapshot: Snapshot, query: q.ListNewest) -> NewestMessages:
    """Walks over the segments of all lanes by their times, newest first, and reads bodies of the page only."""
    session = snapshot.session
    filters = query.status is not None or query.before_at is not None
    wanted = query.offset + query.limit
    most = MOST_LANES if filters else min(MOST_LANES, wanted)
    lanes, barrier = _lanes(session, query, most)
    views = _Views(snapshot)
    places: list[tuple[_LaneView, int]] = []
    scanned = 0
    for created_at, view, lo, hi in _ranges(session, query, lanes):
        if created_at < barrier or scanned >= MOST_SCANNED + query.offset:
            return views.page(places[query.offset :], cut=True)
        for seq in range(hi - 1, lo - 1, -1):
            scanned += 1
            if query.status is None or views.status(view, seq, lo, hi) == query.status:
                places.append((view, seq))
            if len(places) >= wanted:
                return views.page(places[query.offset :], cut=False)
    return views.page(places[query.offset :], cut=barrier > 0)


def _lanes(session: Session, query: q.ListNewest, most: int) -> tuple[list[_LaneView], int]:
    """The lanes with the newest messages. The lanes that are left out have no message after the returned instant."""
    rows = session.rows(
        "lanes_written",
        {
            "queue": query.queue,
            "part": query.partition,
            "ns": query.namespace,
            "task": query.task,
            "after_at": 0 if query.after_at is None else query.after_at,
            "limit": most + 1,
        },
    )
    lanes = [_LaneView(Lane(*row[:6]), row[6], row[7]) for row in rows[:most]]
    return lanes, rows[most][8] if len(rows) > most else 0


def _ranges(session: Session, query: q.ListNewest, lanes: list[_LaneView]) -> Iterator[tuple[int, _LaneView, int, int]]:
    """(instant, lane, lo, hi) of segments, the newest segment first."""
    walks = [_walk(session, query, view) for view in lanes]
    for order, view, lo, hi in heapq.merge(*walks, key=lambda item: item[0], reverse=True):
        yield order[0], view, lo, hi


def _walk(
    session: Session, query: q.ListNewest, view: _LaneView
) -> Iterator[tuple[tuple[int, int, int], _LaneView, int, int]]:
    """Segments of one lane as (order, lane, lo, hi), newest first. Reads no bodies."""
    lane = view.lane
    end = lane.head
    if query.before_at is not None:
        end = seq_at(session, lane.id, lane.start, lane.head, query.before_at)
    while end > lane.start:
        # `end` is the first seq of a segment, or the head: no segment contains messages on both sides of it.
        where = {"lo_pos": place(lane.id, lane.start), "end_pos": place(lane.id, end), "limit": _SEGMENTS}
        rows = session.rows("segment_places", where)
        for pos, first, created_at in rows:
            if query.after_at is not None and created_at < query.after_at:
                return
            lo, hi = max(first, lane.start), min(place_seq(pos) + 1, end)
            if lo < hi:
                yield (created_at, lane.id, lo), view, lo, hi
        if len(rows) < _SEGMENTS:
            return
        end = rows[-1][1]


class _Views:
    """States of messages in the groups of their queues, for one list."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._queues: dict[int, tuple[QueueRow, list[GroupRow]]] = {}
        self._states: dict[tuple[int, int, int, int], dict[int, str]] = {}

    def _queue(self, number: int) -> tuple[QueueRow, list[GroupRow]]:
        if number not in self._queues:
            session = self._snapshot.session
            owner = catalog.queue_of_id(session, number)
            assert owner is not None
            groups = [catalog.group_from(row) for row in session.rows("groups_of_queue", {"queue": number})]
            self._queues[number] = owner, groups
        return self._queues[number]

    def status(self, view: _LaneView, seq: int, lo: int, hi: int) -> str:
        groups = self.groups(view, seq, lo, hi)
        return message_status(groups, self._snapshot.wall, dead=any(group.state == "dead" for group in groups))

    def groups(self, view: _LaneView, seq: int, lo: int, hi: int) -> list[GroupView]:
        return [self._view(view.lane, group, seq, lo, hi) for group in self._queue(view.lane.queue)[1]]

    def _view(self, lane: Lane, group: GroupRow, seq: int, lo: int, hi: int) -> GroupView:
        session = self._snapshot.session
        key = (lane.id, group.id, lo, hi)
        if key not in self._states:
            self._states[key] = queues.states_of(session, group, lane.id, lo, hi)
        state = self._states[key].get(seq, "skipped")
        if state not in ("leased", "waiting"):
            return GroupView(group.name, state)
        held = session.row("span_look", {"lane": lane.id, "grp": group.id, "seq": seq})
        if held is None:
            return GroupView(group.name, state)
        deadline = None if held[3] is None else self._snapshot.shown(held[3])
        return GroupView(group.name, state, deadline, held[1], held[2])

    def page(self, places: list[tuple[_LaneView, int]], *, cut: bool) -> NewestMessages:
        messages = self._read(places)
        return NewestMessages(messages, cut=cut or len(messages) < len(places))

    def _read(self, places: list[tuple[_LaneView, int]]) -> list[FoundMessage]:
        """The messages at these places, as many as fit an answer."""
        result: list[FoundMessage] = []
        room = validation.ANSWER_BYTES // 2  # an answer shows each payload twice, as `data` and as `payload`
        start = 0
        while start < len(places) and room > 0:
            view, last = places[start]
            end = start + 1
            while end < len(places) and places[end] == (view, last - (end - start)) and end - start < _CHUNK:
                end += 1
            lo = last - (end - start) + 1
            for message in reversed(segment_reads.messages(self._snapshot.session, view.lane.id, [(lo, last + 1)])):
                room -= len(message.payload) + validation.ROW_BYTES
                result.append(self._message(view, message, LaneRange(LaneId(view.lane.id), lo, last + 1)))
                if room <= 0:
                    break
            start = end
        return result

    def _message(self, view: _LaneView, message: Message, read: LaneRange) -> FoundMessage:
        owner, _ = self._queue(view.lane.queue)
        groups = self.groups(view, message.seq, read.lo, read.hi)
        return FoundMessage(
            message=message,
            queue=catalog.info(owner),
            partition=view.partition,
            partition_id=view.partition_id,
            priority=view.lane.prio,
            due_at=None,
            groups=groups,
            dead=[],
        )


@answers(q.TotalLedger, reads_ledger=True)
def total_ledger(snapshot: Snapshot, query: q.TotalLedger) -> list[LedgerTotal]:
    where = {
        "queue": query.queue,
        "ns": query.namespace,
        "task": query.task,
        "after": query.after_at // _MINUTE,
        "before": query.before_at // _MINUTE,
        "size": query.minutes,
    }
    rows = snapshot.session.rows("ledger_totals", where)
    return [LedgerTotal(int(bucket) * query.minutes * _MINUTE, outcome, int(n)) for bucket, outcome, n in rows]


@answers(LedgerSeries, reads_ledger=True)
def ledger_series(snapshot: Snapshot, query: LedgerSeries) -> TimeSeries:
    first, last = query.after_at // _MINUTE, -(-query.before_at // _MINUTE)
    size = -((first - last) // query.buckets)
    where: dict[str, object] = {"first": first, "last": last, "size": size, "grp": query.group}
    statement = "ledger_series"
    if query.queue is not None:
        statement, where["queue"] = "ledger_series_of_queue", query.queue
    buckets = -((first - last) // size)
    counts: dict[str, list[int]] = {}
    for bucket, outcome, n in snapshot.session.rows(statement, where):
        counts.setdefault(outcome, [0] * buckets)[int(bucket)] = int(n)
    return TimeSeries(first * _MINUTE, size * _MINUTE, counts)


@answers(q.SumLedger, reads_ledger=True)
def sum_ledger(snapshot: Snapshot, query: q.SumLedger) -> Page[LedgerSum]:
    """Sums of a page of queues. A page has whole queues, so it ends with the last queue that the limit lets in."""
    where = {
        "queue": query.queue,
        "ns": query.namespace,
        "task": query.task,
        "last_queue": query.after,
        "after": query.after_at // _MINUTE,
        "before": query.before_at // _MINUTE,
        "limit": query.limit,
    }
    rows = Page(LedgerSum(queue, outcome, int(n)) for queue, outcome, n in snapshot.session.rows("ledger_sums", where))
    if len({row.queue for row in rows}) >= query.limit > 0:
        rows.next = rows[-1].queue
    return rows
