"""Time-driven duties: expire, promote, max wait. Each call does a bounded amount."""

from __future__ import annotations

from ackwise.core import validation
from ackwise.core.answers import Swept
from ackwise.core.commands import Sweep
from ackwise.core.errors import BadInput
from ackwise.core.events import MessagesPromoted
from ackwise.core.ids import LaneId
from ackwise.core.lifecycle import LifecycleEvent, State, target
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.settlement import Fate, on_max_wait
from ackwise.core.spans import Cursor, Span, cut
from ackwise.core.validation import MICROS
from ackwise.engine import catalog, dead_letters
from ackwise.engine import cursors as engine_cursors
from ackwise.engine.catalog import GroupRow, QueueRow
from ackwise.engine.expiry import expire
from ackwise.engine.extensions import Duty
from ackwise.engine.push import Appender
from ackwise.engine.queue_removal import purge
from ackwise.engine.queue_rounds import lanes_with_old_rows, queues_with_old_rows
from ackwise.engine.retention import forget, retain, shrink
from ackwise.engine.segment import Segment, place
from ackwise.engine.span_settlement import GroupContext, apply_fate
from ackwise.engine.turn import Turn

# `promote` appends messages to their lanes, where they are ready.
assert target(State.SCHEDULED, LifecycleEvent.DUE) is State.READY


def sweep(turn: Turn, command: Sweep) -> Swept:
    validation.count(command.limit, "limit")
    duties = {**_DUTIES, **turn.extensions.duties}
    unknown = set(command.duties) - set(duties)
    if unknown:
        raise BadInput(f"unknown duty {sorted(unknown)[0]!r}; known duties: {', '.join(duties)}")
    done = {duty: duties[duty](turn, command.limit) for duty in command.duties}
    more = any(n >= command.limit or turn.rounds.get(duty) for duty, n in done.items())
    return Swept(done, more=more)


def promote(turn: Turn, limit: int) -> int:
    """Append scheduled messages that are due to their lanes."""
    if turn.now < turn.memory.promotes_from:
        return 0
    rows = turn.session.rows("scheduled_due", {"now": turn.now, "limit": limit})
    if not rows:
        if turn.memory.alone:
            row = turn.session.row("scheduled_next")
            turn.memory.learn_next_scheduled(row[0] if row else None)
        return 0
    names = catalog.part_names(turn.session, {row[2] for row in rows})
    locked = turn.session.lock_parts(sorted(names), skip=True)
    rows = [row for row in rows if row[2] in locked or row[2] not in names]
    appender = Appender(turn)
    for no, queue, part, prio, _, created_at, body in rows:
        owner = catalog.queue_of_id(turn.session, queue)
        if owner is not None and part in names:
            columns = Segment(place(0, 0), 0, created_at, body).columns()
            appender.promote(owner, names[part][0], prio, columns)
            turn.note(MessagesPromoted, owner.name, len(columns))
        turn.session.run("scheduled_delete", {"no": no})
    appender.flush()
    return len(rows)


def max_wait(turn: Turn, limit: int) -> int:
    """Bury messages older than the queue's max wait for each group that neither finished nor leases them."""
    touched = 0
    for queue in queues_with_old_rows(turn, "max_wait", "old_lanes", _waits, "queues_max_wait"):
        if queue.policy.max_wait_seconds is None:
            continue
        cutoff = turn.wall - round(queue.policy.max_wait_seconds * MICROS)
        if not turn.session.rows("lanes_with_old", {"queue": queue.id, "cutoff": cutoff, "after": 0, "limit": 1}):
            continue
        groups = [catalog.group_from(r) for r in turn.session.rows("groups_of_queue", {"queue": queue.id})]
        if not groups:
            groups = [catalog.ensure_group(turn, queue, QUEUE_MODE, "all")]
        for lane in lanes_with_old_rows(turn, queue, cutoff, "lanes_unfinished"):
            bound = engine_cursors.seq_at(turn.session, lane.id, lane.start, lane.head, cutoff + 1)
            for group in groups:
                touched += _bury_waiting(turn, queue, group, lane.id, bound=bound, limit=limit - touched)
                if touched >= limit:
                    return touched
    return touched


def _bury_waiting(turn: Turn, queue: QueueRow, group: GroupRow, lane: LaneId, *, bound: int, limit: int) -> int:
    cursor = turn.cursor(lane, group.id)
    if cursor is None or (cursor.next >= bound and not cursor.held):
        return 0
    context = GroupContext(queue, group, catalog.policy_in_force(queue, group))
    touched = _bury_returned(turn, context, cursor, bound=bound, limit=limit) if cursor.held else 0
    hi = min(bound, cursor.next + limit - touched)
    if hi > cursor.next:
        touched += _bury_unread(turn, context, cursor, hi)
    if touched:
        engine_cursors.refresh(turn, cursor, context.policy, queue.name)
        turn.count(queue.name, group.name, "dead", touched)
    return touched


def _bury_returned(turn: Turn, context: GroupContext, cursor: Cursor, *, bound: int, limit: int) -> int:
    """Bury messages below a seq that were delivered before and returned."""
    touched = 0
    for span in turn.spans("spans_in_order", lane=cursor.lane, grp=cursor.grp, after=-1, limit=limit):
        if span.lease is None and span.lo < bound and touched < limit:
            _, piece, after = cut(span, span.lo, min(bound, span.lo + limit - touched))
            fate = on_max_wait(context.policy, piece.fails, span.state(turn.now))
            turn.replace_span(span, apply_fate(cursor, piece, [after] if after is not None else [], fate))
            _bury(turn, context, cursor, piece, fate)
            touched += len(piece)
    return touched


def _bury_unread(turn: Turn, context: GroupContext, cursor: Cursor, hi: int) -> int:
    span = Span(cursor.lane, cursor.grp, cursor.next, hi)
    fate = on_max_wait(context.policy, 0)
    cursor.finish(fate.state, len(span))
    _bury(turn, context, cursor, span, fate)
    cursor.next = hi
    return len(span)


def _bury(turn: Turn, context: GroupContext, cursor: Cursor, span: Span, fate: Fate) -> None:
    """Write dead letters, or record the messages as dropped in a queue without dead letters."""
    if fate.state is State.DEAD:
        span.history = dead_letters.add_history(span.history, turn.wall, LifecycleEvent.MAX_WAIT.value)
        burial = dead_letters.Burial(span, fate, "waited too long")
        dead_letters.bury(turn, context.queue, context.group, cursor, [burial])
    else:
        dead_letters.note_dropped(turn, cursor.grp, [span.range])


def _waits(queue: QueueRow) -> list[float]:
    return [seconds for seconds in (queue.policy.max_wait_seconds,) if seconds is not None]


_DUTIES: dict[str, Duty] = {
    "expire": expire,
    "promote": promote,
    "max_wait": max_wait,
    "retain": retain,
    "forget": forget,
    "purge": purge,
    "shrink": shrink,
}
