"""The verbs that only look, written once over a session."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from ackwise.core import latency
from ackwise.core import queries as q
from ackwise.core.answers import Claimed, QueueInfo
from ackwise.core.ids import lease_id
from ackwise.core.messages import Message
from ackwise.core.spans import Cursor, Span
from ackwise.store import segment
from ackwise.store.session import Row, Session
from ackwise.store.turn import catalog, reading
from ackwise.store.turn.catalog import GroupRow, QueueRow
from ackwise.store.turn.context import lease_from, ranges_from

_ALWAYS = (-(1 << 62), 1 << 62)


def read(session: Session, claimed: Claimed) -> list[list[segment.Segment]]:
    return [reading.segments(session, g.lane, g.lo, g.hi) for g in claimed.grants]


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
        states = _states(session, group, lane, lo, hi) if group is not None else {}
        for message in reading.messages(session, lane, lo, hi):
            page.append(q.BrowsedMessage(message, name, uuid, prio, states.get(message.seq)))
        if len(page) >= query.limit:
            break
    return page


def _states(session: Session, group: GroupRow, lane: int, lo: int, hi: int) -> dict[int, str]:
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
        return q.DeadPage([_letter(row) for row in found[page]], len(found))
    where["uuid"] = None
    total = session.row("dead_count", where)
    rows = session.rows("dead_list", {**where, "limit": query.limit, "offset": query.offset})
    return q.DeadPage([_letter(row) for row in rows], total[0] if total else 0)


def _letter(row: Row) -> q.DeadLetter:
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


def list_groups(session: Session, query: q.ListGroups) -> list[q.GroupStats]:
    query.check()
    if query.queue is not None:
        queues = [catalog.queue(session, query.queue)]
    else:
        queues = [catalog.queue_from(row) for row in session.rows("queues_living", {"ns": None, "task": None})]
    return [
        _group_stats(session, queue, catalog.group_from(row))
        for queue in queues
        for row in session.rows("groups_of_queue", {"queue": queue.id})
        if query.group is None or row[2] == query.group
    ]


def _group_stats(session: Session, queue: QueueRow, group: GroupRow) -> q.GroupStats:
    totals = session.row("group_totals", {"grp": group.id})
    assert totals is not None
    leases = [lease_from(row) for row in session.rows("leases_of_group", {"grp": group.id})]
    oldest = session.row("oldest_unfinished", {"grp": group.id})
    acked, dead, skipped, expired, held, unread = (int(n) for n in totals)
    return q.GroupStats(
        queue=queue.name,
        group=group.name,
        acked=acked,
        dead=dead,
        skipped=skipped,
        expired=expired,
        held=held,
        unread=unread,
        leases=len(leases),
        oldest_unfinished_at=oldest[0] if oldest else None,
        members=sorted({lease.owner for lease in leases}),
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


def list_leases(session: Session, query: q.ListLeases) -> list[q.LeaseRow]:
    query.check()
    where = {
        "queue": query.queue,
        "grp": query.group,
        "instance": query.instance,
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


def stats(session: Session, query: q.QueueStats) -> q.Stats:
    query.check()
    queue = catalog.queue(session, query.queue)
    totals = session.row("queue_totals", {"queue": queue.id})
    scheduled = session.row("scheduled_count", {"queue": queue.id})
    dead = session.row("dead_of_queue", {"queue": queue.id})
    assert totals is not None
    assert scheduled is not None
    assert dead is not None
    groups = list_groups(session, q.ListGroups(queue=query.queue))
    return q.Stats(query.queue, totals[0], totals[1], int(totals[2] or 0), scheduled[0], dead[0], groups)


def audit(session: Session) -> list[str]:
    """Promise 1 over everything stored, and what the engine relies on besides."""
    problems = []
    for queue in (catalog.queue_from(r) for r in session.rows("queues_living", {"ns": None, "task": None})):
        for group in (catalog.group_from(r) for r in session.rows("groups_of_queue", {"queue": queue.id})):
            cursors = [Cursor(*row) for row in session.rows("cursors_of_group", {"grp": group.id})]
            shut = {cursor.part for cursor in cursors if cursor.exclusive}
            for cursor in cursors:
                where = f"{queue.name}/{group.name}/lane {cursor.lane}"
                problems += [f"{where}: {p}" for p in _audit_cursor(session, cursor, shut=cursor.part in shut)]
    for no, held in session.rows("audit_leases"):
        problems.append(f"lease {no} has ended but still holds {held} spans")
    return problems


def _audit_cursor(session: Session, cursor: Cursor, *, shut: bool) -> list[str]:
    problems = []
    spans = [Span(*r) for r in session.rows("spans_of_cursor", {"lane": cursor.lane, "grp": cursor.grp})]
    if not cursor.balanced():
        problems.append(f"counts do not add up: {cursor}")
    if sum(map(len, spans)) != cursor.held:
        problems.append(f"held is {cursor.held} but spans hold {sum(map(len, spans))}")
    if any(a.hi > b.lo for a, b in pairwise(spans)):
        problems.append("spans overlap")
    if spans and (spans[0].lo < cursor.first or spans[-1].hi > cursor.next):
        problems.append("a span lies outside [first, next)")
    if not cursor.first <= cursor.next <= cursor.head:
        problems.append(f"next {cursor.next} is outside [{cursor.first}, {cursor.head}]")
    if cursor.leased != len({span.lease for span in spans if span.lease is not None}):
        problems.append(f"leased is {cursor.leased}, spans say otherwise")
    free = [s.due_at for s in spans if s.lease is None]
    if cursor.ready_at is None and not shut and (free or cursor.next < cursor.head):
        problems.append("claimable but not marked ready")
    return problems
