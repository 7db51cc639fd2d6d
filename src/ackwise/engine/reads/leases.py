"""Leases, held ranges, depths by priority."""

from __future__ import annotations

from ackwise.core import queries as q
from ackwise.core.ids import lease_id
from ackwise.core.rows import Depth, HeldLease, Page
from ackwise.core.spans import Cursor, Lease, Span
from ackwise.engine import catalog
from ackwise.engine.catalog import QueueRow
from ackwise.engine.reads.queues import page
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.engine.turn import lease_from


@answers(q.ListDepths)
def list_depths(snapshot: Snapshot, query: q.ListDepths) -> Page[Depth]:
    session = snapshot.session
    if query.queue is not None:
        return Page([_depth(snapshot, catalog.queue(session, query.queue), query.group)])
    queues = catalog.queues(session, after=query.after, limit=query.limit)
    return page([_depth(snapshot, queue, query.group) for queue in queues], query.limit, lambda row: row.queue)


@answers(q.IsHeld)
def is_held(snapshot: Snapshot, query: q.IsHeld) -> bool:
    session = snapshot.session
    group = catalog.find_group(session, catalog.queue(session, query.queue), query.group)
    if group is None:
        return False
    return session.row("lease_other", {"grp": group.id, "owner": "", "now": snapshot.now}) is not None


@answers(q.StoreSize)
def store_size(snapshot: Snapshot, _: q.StoreSize) -> int:
    row = snapshot.session.row("store_bytes")
    return 0 if row is None else int(row[0])


def _depth(snapshot: Snapshot, queue: QueueRow, name: str) -> Depth:
    session = snapshot.session
    waiting: dict[int, int] = {}
    group = catalog.find_group(session, queue, name)
    if group is None:
        for _, _, _, prio, head, start, _, _ in session.rows("lanes_of_queue", {"queue": queue.id}):
            waiting[prio] = waiting.get(prio, 0) + head - start
        return Depth(queue.name, _nonzero(waiting), [], 0)
    prios: dict[int, int] = {}
    for cursor in (Cursor(*row) for row in session.rows("cursors_of_group", {"grp": group.id})):
        prios[cursor.lane] = cursor.prio
        waiting[cursor.prio] = waiting.get(cursor.prio, 0) + cursor.head - cursor.next + cursor.held
    unended = [lease_from(row) for row in session.rows("leases_of_group", {"grp": group.id})]
    live = sorted((lease for lease in unended if lease.live(snapshot.now)), key=lambda lease: lease.no)
    leases = [_held_lease(snapshot, lease, prios) for lease in live]
    for lease in leases:
        for _, prio, lo, hi in lease.held:
            waiting[prio] -= hi - lo
    row = session.row("leases_expired_ever", {"grp": group.id})
    expired = (row[0] if row else 0) + len(unended) - len(live)
    return Depth(queue.name, _nonzero(waiting), leases, expired)


def _nonzero(waiting: dict[int, int]) -> dict[int, int]:
    return {prio: count for prio, count in sorted(waiting.items()) if count}


def _held_lease(snapshot: Snapshot, lease: Lease, prios: dict[int, int]) -> HeldLease:
    spans = [Span(*row) for row in snapshot.session.rows("spans_of_lease", {"lease": lease.no})]
    held = sorted((prios[span.lane], span.lane, span.lo, span.hi) for span in spans)
    return HeldLease(
        lease_id(lease.no, lease.tag),
        lease.key,
        lease.owner,
        snapshot.shown(lease.made_at),
        snapshot.shown(lease.deadline),
        [(lane, prio, lo, hi) for prio, lane, lo, hi in held],
    )
