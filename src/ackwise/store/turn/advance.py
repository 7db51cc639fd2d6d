"""What a group read without claiming it."""

from __future__ import annotations

from ackwise.core import limits
from ackwise.core.commands import AdvanceGroup
from ackwise.core.lifecycle import Event, State, target
from ackwise.core.policy import QueuePolicy
from ackwise.core.spans import Cursor
from ackwise.store.session import Outdated
from ackwise.store.turn import catalog, places
from ackwise.store.turn.context import Turn


def advance(turn: Turn, command: AdvanceGroup) -> int:
    """Move cursors on; how many messages count as acked by it. What the group was handed stays as it is."""
    queue = catalog.queue(turn.session, command.queue)
    limits.name(command.group, "group")
    lanes = catalog.named_lanes(turn.session, queue, command.lanes)
    group = catalog.ensure_group(turn, queue, command.group, "all")
    turn.session.lock_parts(sorted({lane.part for lane in lanes}))
    policy = group.policy.over(queue.policy)
    moved = 0
    for lane in lanes:
        cursor = turn.cursor(lane.id, group.id)
        if cursor is None:
            raise Outdated(f"group {group.name!r} was deleted meanwhile")
        moved += _move(turn, cursor, command.lanes[lane.id], policy)
    turn.count(queue.name, group.name, target(State.READY, Event.ADVANCE).value, moved)
    return moved


def _move(turn: Turn, cursor: Cursor, seq: int, policy: QueuePolicy) -> int:
    """Less is claimable than before, so nobody is woken; a lane that was not ready does not become so."""
    count = seq - cursor.next
    if count <= 0:
        return 0
    cursor.next = seq
    cursor.acked += count
    cursor.note_acked(seq - 1, turn.now)
    if cursor.ready_at is not None:
        cursor.ready_at = places.ready_at(turn, cursor, policy)
    turn.save_cursor(cursor)
    return count
