"""What a purge of a queue or a seek of a group would do."""

from __future__ import annotations

from ackwise.core import queries as q
from ackwise.core.rows import GroupPurgePreview, PurgePreview, SeekPreview
from ackwise.core.spans import Cursor, Span
from ackwise.engine import catalog
from ackwise.engine import cursors as engine_cursors
from ackwise.engine.ports import Session
from ackwise.engine.reads.counts import queue_stats
from ackwise.engine.reads.groups import leased_by_lane
from ackwise.engine.reads.registry import Snapshot, answers


@answers(q.PreviewPurge)
def preview_purge(snapshot: Snapshot, query: q.PreviewPurge) -> PurgePreview:
    session = snapshot.session
    queue = catalog.queue(session, query.queue)
    (counted,) = queue_stats(session, [queue])
    groups = [GroupPurgePreview(group.group, group.lag, group.leased, group.leases) for group in counted.groups]
    return PurgePreview(queue.name, snapshot.wall, counted.messages, counted.scheduled, counted.dead, groups)


@answers(q.PreviewSeek)
def preview_seek(snapshot: Snapshot, query: q.PreviewSeek) -> SeekPreview:
    session = snapshot.session
    queue = catalog.queue(session, query.queue)
    group = catalog.group(session, queue, query.group)
    if query.partition is not None:
        part = catalog.part_id(session, queue, query.partition)
        rows = session.rows("cursors_of_part", {"part": part, "grp": group.id})
    else:
        rows = session.rows("cursors_of_group", {"grp": group.id})
    cursors = [Cursor(*row) for row in rows]
    again = skipped = before = after = 0
    for cursor in cursors:
        target = engine_cursors.seek_target(session, query, cursor)
        held_before = _held_before(session, cursor, target)
        held_after = cursor.held - held_before
        skipped += held_before + max(0, target - cursor.next)
        again += max(0, cursor.next - target) - held_after
        before += cursor.head - cursor.next + cursor.held
        after += cursor.head - target
    lanes = {int(cursor.lane) for cursor in cursors}
    held = {key: size for key, size in leased_by_lane(session, group.id).items() if key[1] in lanes}
    leases = len({lease for lease, _ in held})
    return SeekPreview(queue.name, group.name, len(cursors), again, skipped, sum(held.values()), leases, before, after)


def _held_before(session: Session, cursor: Cursor, seq: int) -> int:
    """Messages before a seq that the group holds."""
    if not cursor.held or seq >= cursor.next:
        return cursor.held
    spans = [Span(*row) for row in session.rows("spans_of_cursor", {"lane": cursor.lane, "grp": cursor.grp})]
    return sum(min(span.hi, seq) - span.lo for span in spans if span.lo < seq)
