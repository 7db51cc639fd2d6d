"""The verbs that only look, written once over a session."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ackwise.core import latency
from ackwise.core import queries as q
from ackwise.core.answers import QueueInfo
from ackwise.core.ids import lease_id, parse_lease_id
from ackwise.core.messages import Message
from ackwise.core.spans import Cursor, Span
from ackwise.store import segment
from ackwise.store.session import Row, Session
from ackwise.store.turn import catalog, reading
from ackwise.store.turn.catalog import GroupRow
from ackwise.store.turn.context import ranges_from

_ALWAYS = (-(1 << 62), 1 << 62)


def read(session: Session, ranges: Sequence[tuple[int, int, int]]) -> list[list[segment.Segment]]:
    return [reading.segments(session, lane, lo, hi) for lane, lo, hi in ranges]


def list_queues(session: Session, query: q.ListQueues) -> list[QueueInfo]:
    query.check()
    rows = session.rows("queues_living", {"ns": query.namespace, "task": query.task})
    return [catalog.info(catalog.queue_from(row)) for row in rows]


def get_queue(session: Session, query: q.GetQueue) -> QueueInfo:
    query.check()
    return catalog.info(catalog.queue(session, query.queue))


def browse(session: Session, query: q.Browse) -> list[q.BrowsedMessage]:
    """A page of messages in (lane, seq) order; `after` is the last place of the page before."""
    query.check()
    queue = catalog.queue(session, query.queue)
    group = catalog.group(session, queue, query.group) if query.group is not None else None
    only = catalog.part_id(session, queue, query.partition) if query.partition is not None else None
    page: list[q.BrowsedMessage] = []
    for lane, part, _, prio, head, start, uuid, name in session.rows("lanes_of_queue", {"queue": queue.id}):
        lo = start
        if query.after is not None:
            if lane < query.after[0]:
                continue
            lo = max(lo, query.after[1] + 1) if lane == query.after[0] else lo
        if (only is not None and part != only) or lo >= head:
            continue
        hi = min(head, lo + query.limit - len(page))
        states = states_of(session, group, lane, lo, hi) if group is not None else {}
        for message in reading.messages(session, lane, [(lo, hi)]):
            page.append(q.BrowsedMessage(message, name, uuid, prio, states.get(message.seq)))
        if len(page) >= query.limit:
            break
    return page


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
    where = {
        "queue": catalog.queue(session, query.queue).id if query.queue is not None else None,
        "grp": query.group,
        "part": query.partition,
        "reason": query.reason,
        "after_at": _ALWAYS[0] if query.after_at is None else query.after_at,
        "before_at": _ALWAYS[1] if query.before_at is None else query.before_at,
    }
    page = slice(query.offset, query.offset + query.limit)
    if query.ids is not None:
        named = [session.row("dead_list", {**where, "uuid": uuid, "limit": 1, "offset": 0}) for uuid in set(query.ids)]
        found = sorted((row for row in named if row), key=lambda row: (row[-1], row[0]), reverse=True)
        return q.DeadPage([letter_from(row) for row in found[page]], len(found))
    where["uuid"] = None
    total = session.row("dead_count", where)
    rows = session.rows("dead_list", {**where, "limit": query.limit, "offset": query.offset})
    return q.DeadPage([letter_from(row) for row in rows], total[0] if total else 0)


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


def list_leases(session: Session, query: q.ListLeases) -> list[q.LeaseRow]:
    query.check()
    where = {
        "queue": query.queue,
        "grp": query.group,
        "instance": query.instance,
        "key_prefix": query.key_prefix,
        "live": int(query.live_only),
        "limit": query.limit,
    }
    return [
        q.LeaseRow(
            lease_id(no, tag), queue, group, owner, key, made_at, deadline, ended_at, end_kind,
            sum(hi - lo for _, lo, hi in ranges_from(granted)), int(held or 0),
        )
        for no, tag, queue, group, owner, key, made_at, deadline, ended_at, end_kind, granted, held in session.rows(
            "leases_list", where
        )
    ]  # fmt: skip


def list_held(session: Session, query: q.ListHeld, now: int) -> list[q.HeldRow]:
    key = parse_lease_id(query.lease_id)
    if key is None:
        return []
    return [q.HeldRow(*row) for row in session.rows("spans_held", {"lease": key[0], "tag": key[1], "now": now})]


def read_ledger(session: Session, query: q.ReadLedger) -> list[q.LedgerRow]:
    """Minutes summed over all brokers."""
    query.check()
    minute = 60_000_000
    where = {
        "queue": query.queue,
        "grp": query.group,
        "after": _ALWAYS[0] if query.after_at is None else query.after_at // minute,
        "before": _ALWAYS[1] if query.before_at is None else query.before_at // minute,
    }
    summed: dict[tuple[str, str, int, str], tuple[int, dict[int, int]]] = {}
    for queue, grp, at, outcome, n, text in session.rows("ledger_list", where):
        count, sketch = summed.get((queue, grp, at, outcome), (0, {}))
        mine = msgspec.json.decode(text, type=dict[int, int])
        summed[queue, grp, at, outcome] = (count + n, latency.merged(sketch, mine))
    return [
        q.LedgerRow(queue, grp, at * minute, outcome, count, {latency.bound(b): n for b, n in sorted(sketch.items())})
        for (queue, grp, at, outcome), (count, sketch) in summed.items()
    ]
