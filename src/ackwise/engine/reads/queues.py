"""Queues, messages, cursors, leases and the ledger, as lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from ackwise.core import latency, validation
from ackwise.core import queries as q
from ackwise.core import rows as core_rows
from ackwise.core.answers import QueueInfo
from ackwise.core.errors import BadInput, UnknownLease
from ackwise.core.ids import LaneId, lease_id, parse_lease_id
from ackwise.core.lane_range import LaneRange
from ackwise.core.messages import Message
from ackwise.core.spans import Cursor, Span
from ackwise.engine import catalog, segment, segment_reads
from ackwise.engine.catalog import GroupRow, QueueRow
from ackwise.engine.ports import Row, Session
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.engine.turn import ranges_from

T = TypeVar("T")
ALWAYS = (-(1 << 62), 1 << 62)
"""Bounds that include every instant and number."""
_MINUTE = 60_000_000


def read(session: Session, ranges: Sequence[LaneRange], room: int | None = None) -> list[list[segment.Segment]]:
    """The segments of each range. With `room` only the first segments of each range that fit this many bytes."""
    if room is not None:
        ranges = [LaneRange(lane, lo, _fitting_end(session, lane, lo, hi, room)) for lane, lo, hi in ranges]
    return [segment_reads.segments(session, lane, lo, hi) for lane, lo, hi in ranges]


@answers(q.ListQueues)
def list_queues(snapshot: Snapshot, query: q.ListQueues) -> core_rows.Page[QueueInfo]:
    session = snapshot.session
    if query.noted:
        limit = query.limit or catalog.PAGE
        noted = map(catalog.queue_from, session.rows("queues_noted", {"after": query.after, "limit": limit}))
        return page([catalog.info(queue) for queue in noted], limit, _name_of)
    queues = catalog.queues(session, query.namespace, query.task, after=query.after, limit=query.limit)
    return page([catalog.info(queue) for queue in queues], query.limit, _name_of)


def page(rows: Iterable[T], limit: int | None, key: Callable[[T], Any]) -> core_rows.Page[T]:
    """Rows as a page. A full page has the key of its last row as `next`."""
    result = core_rows.Page(rows)
    if limit is not None and len(result) >= limit > 0:
        result.next = key(result[-1])
    return result


def _name_of(info: QueueInfo) -> str:
    return info.name


@answers(q.GetQueue)
def get_queue(snapshot: Snapshot, query: q.GetQueue) -> QueueInfo:
    return catalog.info(catalog.queue(snapshot.session, query.queue))


_LANES = 200
"""Lanes that one statement reads for a page of messages."""


@answers(q.Browse)
def browse(snapshot: Snapshot, query: q.Browse) -> core_rows.Page[core_rows.BrowsedMessage]:
    """A page of messages by lane and seq."""
    session = snapshot.session
    queue = catalog.queue(session, query.queue)
    group = catalog.group(session, queue, query.group) if query.group is not None else None
    messages: core_rows.Page[core_rows.BrowsedMessage] = core_rows.Page()
    room, limit = validation.ANSWER_BYTES, min(query.limit, validation.MOST_ROWS)
    for lane, _, _, prio, head, start, uuid, name in _filled_lanes(session, queue, query):
        lo = start
        if query.after is not None and lane == query.after[0]:
            lo = max(lo, query.after[1] + 1)
        if lo >= head:
            continue
        if len(messages) >= limit or room <= 0:
            break
        hi = min(head, lo + limit - len(messages))
        end = _fitting_end(session, lane, lo, hi, room)
        states = states_of(session, group, lane, lo, end) if group is not None else {}
        for message in segment_reads.messages(session, lane, [(lo, end)]):
            if room <= 0:
                break
            room -= _weight(message)
            messages.append(core_rows.BrowsedMessage(message, name, uuid, prio, states.get(message.seq)))
    else:
        last = messages[-1].message if messages else None
        if last is None or last.seq + 1 >= _head_of(session, last.lane):
            return messages
    if messages:
        messages.next = (messages[-1].message.lane, messages[-1].message.seq)
    return messages


def _weight(message: Message) -> int:
    """Approximate bytes of a message in an answer."""
    headers = sum(len(name) + len(value) for name, value in message.headers.items())
    return len(message.payload) + headers + validation.ROW_BYTES


def _filled_lanes(session: Session, queue: QueueRow, query: q.Browse) -> Iterator[Row]:
    """Lanes with messages, of the queue or of a partition, from the end of the previous page on."""
    where: dict[str, int] = {"lane": query.after[0] if query.after is not None else 0, "limit": _LANES}
    if query.partition is not None:
        where["part"] = catalog.part_id(session, queue, query.partition)
    else:
        where["queue"] = queue.id
    while True:
        rows = session.rows("lanes_filled" if query.partition is None else "lanes_filled_of_part", where)
        yield from rows
        if len(rows) < _LANES:
            return
        where["lane"] = rows[-1][0] + 1


def _fitting_end(session: Session, lane: LaneId, lo: int, hi: int, room: int) -> int:
    """The end of the part of [lo, hi) whose segments fit `room` bytes. At least one segment fits."""
    for first, last, size in segment_reads.sizes(session, lane, lo, hi):
        if room <= 0:
            return max(lo + 1, first)
        room -= size + validation.ROW_BYTES * (last + 1 - max(lo, first))
    return hi


def _head_of(session: Session, lane: int) -> int:
    row = session.row("lane_by_id", {"id": lane})
    return int(row[4]) if row else 0


def states_of(session: Session, group: GroupRow, lane: LaneId, lo: int, hi: int) -> dict[int, str]:
    """The state of each message of [lo, hi) for a group."""
    row = session.row("cursor_get", {"lane": lane, "grp": group.id})
    if row is None:
        return {}
    cursor = Cursor(*row)
    states = {
        seq: "skipped" if seq < cursor.first else "acked" if seq < cursor.next else "ready" for seq in range(lo, hi)
    }
    where = {"lane": lane, "grp": group.id}
    for seq_row in session.rows("dead_in_range", {**where, "epoch": cursor.epoch, "lo": lo, "hi": hi}):
        if cursor.first <= seq_row[0] < cursor.next:
            states[seq_row[0]] = "dead"
    for first, end in session.rows("dropped_inside", {**where, "lo": lo, "hi": hi}):
        states |= dict.fromkeys(range(max(lo, first), min(hi, end)), "dropped")
    spans = [Span(*r) for r in session.rows("spans_inside", {**where, "lo": lo, "hi": hi})]
    spans += [Span(*r) for r in session.rows("span_across", {**where, "hi": hi})]
    for span in spans:
        state = "ready" if span.bypassed else "waiting" if span.lease is None else "leased"
        states |= dict.fromkeys(range(max(lo, span.lo), min(hi, span.hi)), state)
    return states


@answers(q.ListCursors)
def list_cursors(snapshot: Snapshot, query: q.ListCursors) -> list[core_rows.CursorRow]:
    session = snapshot.session
    queue = catalog.queue(session, query.queue)
    group = catalog.group(session, queue, query.group)
    cursors = {c.lane: c for c in (Cursor(*row) for row in session.rows("cursors_of_group", {"grp": group.id}))}
    rows = []
    for lane, _, _, prio, head, start, uuid, name in session.rows("lanes_of_queue", {"queue": queue.id}):
        c = cursors.get(lane)
        if c is not None:
            rows.append(
                core_rows.CursorRow(
                    name, uuid, prio, lane, start, head, c.epoch, c.first, c.next, c.held, c.acked, c.dead, c.skipped,
                    c.expired, c.leased, None if c.ready_at is None else snapshot.shown(c.ready_at),
                )
            )  # fmt: skip
    return rows


@answers(q.ListLanes)
def list_lanes(snapshot: Snapshot, query: q.ListLanes) -> list[core_rows.LaneRow]:
    session = snapshot.session
    where = {"queue": catalog.queue(session, query.queue).id}
    lanes = [
        core_rows.LaneRow(lane, name, uuid, prio, start, head)
        for lane, _, _, prio, head, start, uuid, name in session.rows("lanes_of_queue", where)
    ]
    if query.settled:
        done: dict[int, int] = dict(session.rows("lanes_settled", where))
        for lane in lanes:
            lane.settled = done.get(lane.lane, lane.start)
    return lanes


@answers(q.ListLeases)
def list_leases(snapshot: Snapshot, query: q.ListLeases) -> core_rows.Page[core_rows.LeaseRow]:
    session = snapshot.session
    where = {
        "queue": query.queue,
        "grp": query.group,
        "instance": query.instance,
        "key_prefix": query.key_prefix,
        "below": ALWAYS[1] if query.after is None else _lease_number(query.after),
        "limit": query.limit,
    }
    rows = session.rows("leases_living" if query.live_only else "leases_list", where)
    return page((_lease_row(snapshot, row) for row in rows), query.limit, lambda row: row.lease_id)


@answers(q.GetLease)
def get_lease(snapshot: Snapshot, query: q.GetLease) -> core_rows.LeaseRow:
    key = parse_lease_id(query.lease_id)
    row = None if key is None else snapshot.session.row("lease_shown", {"no": key[0], "tag": key[1]})
    if row is None:
        raise UnknownLease(f"there is no lease {query.lease_id!r:.60}; list the leases to see their ids")
    return _lease_row(snapshot, row)


@answers(q.ListOldestLeases)
def list_oldest_leases(snapshot: Snapshot, query: q.ListOldestLeases) -> core_rows.Page[core_rows.LeaseRow]:
    session = snapshot.session
    made_at, no = (-1, -1) if query.after is None else (query.after[0], _lease_number(query.after[1]))
    where = {"queue": query.queue, "now": snapshot.now, "made_at": made_at, "no": no, "limit": query.limit}
    rows = session.rows("leases_oldest", where)
    leases = core_rows.Page(_lease_row(snapshot, row) for row in rows)
    if len(leases) >= query.limit > 0:
        # The place is an instant of the anchored clock, so that a step of the wall clock skips no lease.
        leases.next = (rows[-1][6], leases[-1].lease_id)
    return leases


_RECENT_LEASES = 10_000
"""Newest leases among which a list of consumers looks for ended ones."""


@answers(q.ListConsumers)
def list_consumers(snapshot: Snapshot, query: q.ListConsumers) -> core_rows.Page[core_rows.ConsumerRow]:
    last_queue, last_group, last_consumer = query.after or ("", "", "")
    where = {
        "queue": query.queue,
        "grp": query.group,
        "now": snapshot.now,
        "since": snapshot.now - query.recent,
        "newest": _RECENT_LEASES,
        "paged": int(query.after is not None),
        "last_queue": last_queue,
        "last_grp": last_group,
        "last_consumer": last_consumer,
        "limit": query.limit,
    }
    consumers = [_consumer_row(snapshot, row) for row in snapshot.session.rows("consumers_list", where)]
    return page(consumers, query.limit, lambda row: (row.queue, row.group, row.consumer))


def _consumer_row(snapshot: Snapshot, row: Row) -> core_rows.ConsumerRow:
    queue, group, consumer, leases, held, claims, claimed_at, deadline = row
    return core_rows.ConsumerRow(
        queue, group, consumer, int(leases), int(held), int(claims), snapshot.shown(claimed_at),
        None if deadline is None else snapshot.shown(deadline),
    )  # fmt: skip


def _lease_number(after: str) -> int:
    """Number of the lease after which a page starts."""
    place = parse_lease_id(after)
    if place is None:
        raise BadInput(f"after must be the id of a lease, not {after!r:.60}")
    return place[0]


def _lease_row(snapshot: Snapshot, row: Row) -> core_rows.LeaseRow:
    no, tag, queue, group, owner, key, made_at, deadline, ended_at, end_kind, granted, held = row
    return core_rows.LeaseRow(
        lease_id(no, tag), queue, group, owner, key, snapshot.shown(made_at), snapshot.shown(deadline),
        None if ended_at is None else snapshot.shown(ended_at), end_kind,
        sum(hi - lo for _, lo, hi in ranges_from(granted)), int(held or 0),
    )  # fmt: skip


@answers(q.ListHeld)
def list_held(snapshot: Snapshot, query: q.ListHeld) -> list[core_rows.HeldRow]:
    key = parse_lease_id(query.lease_id)
    if key is None:
        return []
    rows = snapshot.session.rows("spans_held", {"lease": key[0], "tag": key[1], "now": snapshot.now})
    return [core_rows.HeldRow(*row) for row in rows]


@answers(q.ReadLedger, reads_ledger=True)
def read_ledger(snapshot: Snapshot, query: q.ReadLedger) -> core_rows.Page[core_rows.LedgerRow]:
    """Ledger minutes, summed over all brokers."""
    session = snapshot.session
    last_minute, *last = query.after if query.after is not None else (-1, "", "", "")
    after = ALWAYS[0] if query.after_at is None else query.after_at // _MINUTE
    where = {
        "queue": query.queue,
        "grp": query.group,
        "after": max(after, last_minute // _MINUTE),
        "before": ALWAYS[1] if query.before_at is None else query.before_at // _MINUTE,
        "last_minute": last_minute // _MINUTE,
        **dict(zip(("last_queue", "last_grp", "last_outcome"), last, strict=True)),
        "limit": ALWAYS[1] if query.limit is None else query.limit + 1,
    }
    rows = session.rows("ledger_list", where)
    summed: dict[tuple[str, str, int, str], tuple[int, dict[int, int]]] = {}
    for queue, grp, at, outcome, n, text in rows:
        count, sketch = summed.get((queue, grp, at, outcome), (0, {}))
        added = msgspec.json.decode(text, type=dict[int, int])
        summed[queue, grp, at, outcome] = (count + n, latency.merged(sketch, added))
    cut = len(rows) == where["limit"]
    if cut and len(summed) > 1:
        # Each broker has its own rows. The limit may have cut off some rows of the last minute.
        summed.popitem()
    minutes = core_rows.Page(
        core_rows.LedgerRow(
            queue, grp, at * _MINUTE, outcome, count, {latency.bound(b): n for b, n in sorted(sketch.items())}
        )
        for (queue, grp, at, outcome), (count, sketch) in summed.items()
    )
    if cut:
        minutes.next = (minutes[-1].minute, minutes[-1].queue, minutes[-1].group, minutes[-1].outcome)
    return minutes
