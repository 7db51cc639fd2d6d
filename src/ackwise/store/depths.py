"""How much waits in each priority, and who holds what: as it is now, whether or not a sweep has come by."""

from __future__ import annotations

from ackwise.core import queries as q
from ackwise.core.ids import lease_id
from ackwise.core.spans import Cursor, Lease, Span
from ackwise.store.reads import page
from ackwise.store.session import Session
from ackwise.store.turn import catalog
from ackwise.store.turn.catalog import QueueRow
from ackwise.store.turn.context import lease_from


def list_depths(session: Session, query: q.ListDepths, now: int) -> q.Page[q.Depth]:
    query.check()
    if query.queue is not None:
        return q.Page([_depth(session, catalog.queue(session, query.queue), query.group, now)])
    queues = catalog.queues(session, after=query.after, limit=query.limit)
    return page([_depth(session, queue, query.group, now) for queue in queues], query.limit, lambda row: row.queue)


def is_held(session: Session, query: q.IsHeld, now: int) -> bool:
    query.check()
    group = catalog.find_group(session, catalog.queue(session, query.queue), query.group)
    if group is None:
        return False
    return session.row("lease_other", {"grp": group.id, "owner": "", "now": now}) is not None


def _depth(session: Session, queue: QueueRow, name: str, now: int) -> q.Depth:
    waiting: dict[int, int] = {}
    group = catalog.find_group(session, queue, name)
    if group is None:
        for _, _, _, prio, head, start, _, _ in session.rows("lanes_of_queue", {"queue": queue.id}):
            waiting[prio] = waiting.get(prio, 0) + head - start
        return q.Depth(queue.name, _filled(waiting), [], 0)
    prios: dict[int, int] = {}
    for cursor in (Cursor(*row) for row in session.rows("cursors_of_group", {"grp": group.id})):
        prios[cursor.lane] = cursor.prio
        waiting[cursor.prio] = waiting.get(cursor.prio, 0) + cursor.head - cursor.next + cursor.held
    unended = [lease_from(row) for row in session.rows("leases_of_group", {"grp": group.id})]
    live = sorted((lease for lease in unended if lease.live(now)), key=lambda lease: lease.no)
    leases = [_held(session, lease, prios) for lease in live]
    for lease in leases:
        for _, prio, lo, hi in lease.held:
            waiting[prio] -= hi - lo
    row = session.row("leases_expired_ever", {"grp": group.id})
    expired = (row[0] if row else 0) + len(unended) - len(live)
    return q.Depth(queue.name, _filled(waiting), leases, expired)


def _filled(waiting: dict[int, int]) -> dict[int, int]:
    return {prio: count for prio, count in sorted(waiting.items()) if count}


def _held(session: Session, lease: Lease, prios: dict[int, int]) -> q.HeldLease:
    spans = [Span(*row) for row in session.rows("spans_of_lease", {"lease": lease.no})]
    held = sorted((prios[span.lane], span.lane, span.lo, span.hi) for span in spans)
    return q.HeldLease(
        lease_id(lease.no, lease.tag),
        lease.key,
        lease.owner,
        lease.made_at,
        lease.deadline,
        [(lane, prio, lo, hi) for prio, lane, lo, hi in held],
    )
