"""What must hold of everything stored, looked at without touching it."""

from __future__ import annotations

from itertools import pairwise

from ackwise.core.spans import Cursor, Span
from ackwise.store.session import Session
from ackwise.store.turn import catalog


def audit(session: Session) -> list[str]:
    """Promise 1 over everything stored, and what the engine relies on besides."""
    problems = []
    for queue in catalog.queues(session):
        for group in (catalog.group_from(r) for r in session.rows("groups_of_queue", {"queue": queue.id})):
            cursors = [Cursor(*row) for row in session.rows("cursors_of_group", {"grp": group.id})]
            shut = {cursor.part for cursor in cursors if cursor.exclusive}
            for cursor in cursors:
                where = f"{queue.name}/{group.name}/lane {cursor.lane}"
                problems += [f"{where}: {p}" for p in _audit_cursor(session, cursor, shut=cursor.part in shut)]
    for no, held in session.rows("audit_leases"):
        problems.append(f"lease {no} has ended but still holds {held} spans")
    return problems + _audit_graph(session)


def _audit_graph(session: Session) -> list[str]:
    """No two live deliveries of one entity, none without a lease, and counts that are right."""
    checks = {
        "mew_audit_held": "entity {} is held by a lease that has ended",
        "mew_audit_leases": "lease {} of a delivery holds nothing",
        "mew_audit_items": "pool {} would hand out entity {}, which is held",
        "mew_audit_counts": "watch {} counts {} deliveries but holds {}",
        "mew_audit_orphans": "entity {} is gone but has values or edges",
    }
    return [text.format(*row) for name, text in checks.items() for row in session.rows(name)]


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
