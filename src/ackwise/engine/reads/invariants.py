"""Invariants of the stored state."""

from __future__ import annotations

from itertools import pairwise

from ackwise.core.spans import Cursor, Span
from ackwise.engine import catalog
from ackwise.engine.ports import Session


def audit(session: Session) -> list[str]:
    """Check the counts of all cursors (promise 1) and the other invariants. Returns one text per violation."""
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
        problems.append(f"leased is {cursor.leased}, which differs from the spans")
    free = [s.due_at for s in spans if s.lease is None]
    if cursor.ready_at is None and not shut and (free or cursor.next < cursor.head):
        problems.append("claimable but not marked ready")
    return problems
