"""The verbs that only look, written once over a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from ackwise.core import latency, limits
from ackwise.core import queries as q
from ackwise.core.answers import QueueInfo
from ackwise.core.errors import BadInput
from ackwise.core.ids import lease_id, parse_lease_id
from ackwise.core.messages import Message
from ackwise.core.spans import Cursor, Span
from ackwise.store import segment
from ackwise.store.session import Row, Session
from ackwise.store.turn import catalog, reading
from ackwise.store.turn.catalog import GroupRow, QueueRow
from ackwise.store.turn.context import ranges_from

T = TypeVar("T")
_ALWAYS = (-(1 << 62), 1 << 62)
_MINUTE = 60_000_000


def read(session: Session, ranges: Sequence[tuple[int, int, int]]) -> list[list[segment.Segment]]:
    return [reading.segments(session, lane, lo, hi) for lane, lo, hi in ranges]


def list_queues(session: Session, query: q.ListQueues) -> q.Page[QueueInfo]:
    query.check()
    if query.noted:
        limit = query.limit or catalog.PAGE
        noted = map(catalog.queue_from, session.rows("queues_noted", {"after": query.after, "limit": limit}))
        return page([catalog.info(queue) for queue in noted], limit, _name_of)
    queues = catalog.queues(session, query.namespace, query.task, after=query.after, limit=query.limit)
    return page([catalog.info(queue) for queue in queues], query.limit, _name_of)


def page(rows: Iterable[T], limit: int | None, key: Callable[[T], Any]) -> q.Page[T]:
    """A page. A full page names the place behind its last row."""
    made = q.Page(rows)
    if limit is not None and len(made) >= limit > 0:
        made.next = key(made[-1])
    return made


def _name_of(info: QueueInfo) -> str:
    return info.name


def get_queue(session: Session, query: q.GetQueue) -> QueueInfo:
    query.check()
    return catalog.info(catalog.queue(session, query.queue))


_LANES = 200
"""Lanes that a page of messages looks at together."""


def browse(session: Session, query: q.Browse) -> q.Page[q.BrowsedMessage]:
    """A page of messages in (lane, seq) order; `after` is the last place of the page before."""
    query.check()
    queue = catalog.queue(session, query.queue)
    group = catalog.group(session, queue, query.group) if query.group is not None else None
    found: q.Page[q.BrowsedMessage] = q.Page()
    room, limit = limits.ANSWER_BYTES, min(query.limit, limits.MOST_ROWS)
    for lane, _, _, prio, head, start, uuid, name in _filled_lanes(session, queue, query):
        lo = start
        if query.after is not None and lane == query.after[0]:
            lo = max(lo, query.after[1] + 1)
        if lo >= head:
            continue
        if len(found) >= limit or room <= 0:
            break
        hi = min(head, lo + limit - len(found))
        within = _within(session, lane, lo, hi, room)
        states = states_of(session, group, lane, lo, within) if group is not None else {}
        for message in reading.messages(session, lane, [(lo, within)]):
            if room <= 0:
                break
            room -= _weight(message)
            found.append(q.BrowsedMessage(message, name, uuid, prio, states.get(message.seq)))
    else:
        last = found[-1].message if found else None
        if last is None or last.seq + 1 >= _head_of(session, last.lane):
            return found
    if found:
        found.next = (found[-1].message.lane, found[-1].message.seq)
    return found


def _weight(message: Message) -> int:
    """About the bytes of a message in an answer."""
    headers = sum(len(name) + len(value) for name, value in message.headers.items())
    return len(message.payload) + headers + limits.ROW_BYTES


def _filled_lanes(session: Session, queue: QueueRow, query: q.Browse) -> Iterator[Row]:
    """Lanes of the queue or of a partition that hold messages, from the place of the page before."""
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


def _within(session: Session, lane: int, lo: int, hi: int, room: int) -> int:
    """The end of the part of [lo, hi) that fits: segments until they have `room` bytes, at least one segment."""
    for first, last, size in reading.sizes(session, lane, lo, hi):
        if room <= 0:
            return max(lo + 1, first)
        room -= size + limits.ROW_BYTES * (last + 1 - max(lo, first))
    return hi


def _head_of(session: Session, lane: int) -> int:
    row = session.row("lane_by_id", {"id": lane})
    return int(row[4]) if row else 0


def states_of(session: Session, group: GroupRow, lane: int, lo: int, hi: int) -> dict[int, str]:
    """How each message of [lo, hi) stands for a group."""
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
        for seq in range(max(lo, span.lo), min(hi, span.hi)):
            states[seq] = "waiting" if span.lease is None else "leased"
    return states


def list_dead(session: Session, query: q.ListDead) -> q.DeadPage:
    query.check()
    queue = catalog.queue(session, query.queue).id if query.queue is not None else None
    before = _ALWAYS[1] if query.before_at is None else query.before_at
    where = {
        "queue": queue,
        "grp": query.group,
        "part": query.partition,
        "reason": query.reason,
        "after_at": _ALWAYS[0] if query.after_at is None else query.after_at,
        "before_at": before,
    }
    if query.ids is not None:
        return _named_dead(session, query, where)
    suffix = "_all" if queue is None else ""
    if queue is None:
        del where["queue"]
    total = session.row(f"dead_count{suffix}", where)
    last_at, last_id = query.after if query.after is not None else (_ALWAYS[1], _ALWAYS[1])
    where |= {"last_at": last_at, "last_id": last_id, "before_at": min(before, last_at)}
    limit = min(query.limit, limits.MOST_ROWS)
    where |= {"limit": limit + 1, "offset": query.offset}
    behind = session.rows(f"dead_sizes{suffix}", where)
    sizes = _fitting(behind[:limit], limits.ANSWER_BYTES)
    rows = session.rows(f"dead_list{suffix}", {**where, "limit": len(sizes)}) if sizes else []
    made = q.DeadPage([letter_from(row) for row in rows], total[0] if total else 0)
    if sizes and len(behind) > len(sizes):
        made.next = (sizes[-1][1], sizes[-1][0])
    return made


def _fitting(sizes: list[Row], room: int) -> list[Row]:
    """Leading rows (id, instant, bytes) until they have `room` bytes, at least one."""
    fitting = []
    for row in sizes:
        if room <= 0:
            break
        room -= row[2] + limits.ROW_BYTES
        fitting.append(row)
    return fitting


def _named_dead(session: Session, query: q.ListDead, where: dict[str, Any]) -> q.DeadPage:
    assert query.ids is not None
    named = [session.row("dead_with", {**where, "uuid": uuid}) for uuid in set(query.ids)]
    found = sorted((row for row in named if row), key=lambda row: (row[1], row[0]), reverse=True)
    sizes = _fitting(found[query.offset : query.offset + query.limit], limits.ANSWER_BYTES)
    rows = [row for size in sizes if (row := session.row("dead_get", {"id": size[0]})) is not None]
    return q.DeadPage([letter_from(row) for row in rows], len(found))


def letter_from(row: Row) -> q.DeadLetter:
    (
        uuid,
        queue,
        part,
        part_uuid,
        group,
        lane,
        seq,
        txid,
        reason,
        error,
        etype,
        fails,
        delivs,
        history,
        body,
        born,
        died,
    ) = row
    message: Message = segment.snapshot(lane, seq, born, body)
    return q.DeadLetter(
        id=uuid,
        queue=queue,
        partition=part,
        partition_id=part_uuid,
        group=group,
        seq=message.seq,
        message_id=message.id,
        transaction_id=txid,
        reason=reason,
        error=error,
        error_type=etype,
        failures=fails,
        deliveries=delivs,
        history=msgspec.json.decode(history) if history else [],
        payload=message.payload,
        headers=message.headers,
        content_type=message.content_type,
        created_at=message.created_at,
        dead_at=died,
    )


def list_cursors(session: Session, query: q.ListCursors) -> list[q.CursorRow]:
    query.check()
    queue = catalog.queue(session, query.queue)
    group = catalog.group(session, queue, query.group)
    cursors = {c.lane: c for c in (Cursor(*row) for row in session.rows("cursors_of_group", {"grp": group.id}))}
    rows = []
    for lane, _, _, prio, head, start, uuid, name in session.rows("lanes_of_queue", {"queue": queue.id}):
        c = cursors.get(lane)
        if c is not None:
            rows.append(
                q.CursorRow(
                    name, uuid, prio, lane, start, head, c.epoch, c.first, c.next, c.held, c.acked, c.dead, c.skipped,
                    c.expired, c.leased, c.ready_at,
                )
            )  # fmt: skip
    return rows


def list_lanes(session: Session, query: q.ListLanes) -> list[q.LaneRow]:
    query.check()
    where = {"queue": catalog.queue(session, query.queue).id}
    lanes = [
        q.LaneRow(lane, name, uuid, prio, start, head)
        for lane, _, _, prio, head, start, uuid, name in session.rows("lanes_of_queue", where)
    ]
    if query.settled:
        done: dict[int, int] = dict(session.rows("lanes_settled", where))
        for lane in lanes:
            lane.settled = done.get(lane.lane, lane.start)
    return lanes


def list_leases(session: Session, query: q.ListLeases) -> q.Page[q.LeaseRow]:
    query.check()
    place = parse_lease_id(query.after) if query.after is not None else None
    if query.after is not None and place is None:
        raise BadInput(f"after must be the id of a lease, not {query.after!r:.60}")
    where = {
        "queue": query.queue,
        "grp": query.group,
        "instance": query.instance,
        "key_prefix": query.key_prefix,
        "below": _ALWAYS[1] if place is None else place[0],
        "limit": query.limit,
    }
    found = [
        q.LeaseRow(
            lease_id(no, tag), queue, group, owner, key, made_at, deadline, ended_at, end_kind,
            sum(hi - lo for _, lo, hi in ranges_from(granted)), int(held or 0),
        )
        for no, tag, queue, group, owner, key, made_at, deadline, ended_at, end_kind, granted, held in session.rows(
            "leases_living" if query.live_only else "leases_list", where
        )
    ]  # fmt: skip
    return page(found, query.limit, lambda row: row.lease_id)


def list_held(session: Session, query: q.ListHeld, now: int) -> list[q.HeldRow]:
    key = parse_lease_id(query.lease_id)
    if key is None:
        return []
    return [q.HeldRow(*row) for row in session.rows("spans_held", {"lease": key[0], "tag": key[1], "now": now})]


def read_ledger(session: Session, query: q.ReadLedger) -> q.Page[q.LedgerRow]:
    """Minutes summed over all brokers."""
    query.check()
    last_minute, *last = query.after if query.after is not None else (-1, "", "", "")
    after = _ALWAYS[0] if query.after_at is None else query.after_at // _MINUTE
    where = {
        "queue": query.queue,
        "grp": query.group,
        "after": max(after, last_minute // _MINUTE),
        "before": _ALWAYS[1] if query.before_at is None else query.before_at // _MINUTE,
        "last_minute": last_minute // _MINUTE,
        **dict(zip(("last_queue", "last_grp", "last_outcome"), last, strict=True)),
        "limit": _ALWAYS[1] if query.limit is None else query.limit + 1,
    }
    rows = session.rows("ledger_list", where)
    summed: dict[tuple[str, str, int, str], tuple[int, dict[int, int]]] = {}
    for queue, grp, at, outcome, n, text in rows:
        count, sketch = summed.get((queue, grp, at, outcome), (0, {}))
        mine = msgspec.json.decode(text, type=dict[int, int])
        summed[queue, grp, at, outcome] = (count + n, latency.merged(sketch, mine))
    cut = len(rows) == where["limit"]
    if cut and len(summed) > 1:
        # Each broker counts separately: some rows of the last minute may be missing.
        summed.popitem()
    made = q.Page(
        q.LedgerRow(queue, grp, at * _MINUTE, outcome, count, {latency.bound(b): n for b, n in sorted(sketch.items())})
        for (queue, grp, at, outcome), (count, sketch) in summed.items()
    )
    if cut:
        made.next = (made[-1].minute, made[-1].queue, made[-1].group, made[-1].outcome)
    return made
