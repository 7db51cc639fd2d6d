"""Traces: notes that consumers attach to messages. Retention removes them with their messages."""

from __future__ import annotations

import msgspec

from ackwise.core.answers import TraceAdded
from ackwise.core.commands import AddTrace
from ackwise.core.errors import Conflict
from ackwise.core.ids import uuid_text
from ackwise.engine.ports import Row
from ackwise.engine.turn import Turn

MOST_OF_MESSAGE = 1000
MOST_TRACES = 1_000_000
"""Traces that a store keeps. The oldest go first."""
_LANES = 20


class TooManyTraces(Conflict):
    """The message has too many traces; write fewer traces for one message."""

    code = "too_many_traces"


def add(turn: Turn, command: AddTrace) -> TraceAdded:
    """Store a trace. A message that retention has removed meanwhile counts as not stored."""
    message = {"part_uuid": command.partition_id, "txid": command.transaction_id}
    row = turn.session.row("trace_count", message)
    if row is not None and row[0] >= MOST_OF_MESSAGE:
        raise TooManyTraces(f"the message has {row[0]} traces, which is the limit; write fewer traces for one message")
    part = turn.session.row("part_by_uuid", {"uuid": command.partition_id})
    uuid = uuid_text(turn.new_uuid())
    stored = part is not None and _is_stored(turn, command)
    made = turn.session.row(
        "trace_insert",
        {
            **message,
            "uuid": uuid,
            "queue": part[1] if part is not None else None,
            "lane": command.lane if stored else None,
            "seq": command.seq if stored else None,
            "grp": command.group,
            "event": command.event,
            "data": command.data,
            "worker": command.worker,
            "created_at": turn.wall,
        },
    )
    assert made is not None
    names = [{"name": name, "trace": made[0]} for name in dict.fromkeys(command.names)]
    turn.session.many("trace_name_insert", names)
    return TraceAdded(uuid)


def _is_stored(turn: Turn, command: AddTrace) -> bool:
    lane = turn.session.row("lane_by_id", {"id": command.lane}) if command.lane is not None else None
    return lane is not None and command.seq is not None and lane[5] <= command.seq < lane[4]


def forget(turn: Turn, limit: int, before: int) -> int:
    """Remove traces of removed messages, traces without a message from before an instant, and the oldest surplus."""
    removed = 0
    for lane, below in turn.session.rows("trace_pruned_next", {"limit": _LANES}):
        rows = turn.session.rows("traces_pruned", {"lane": lane, "below": below, "limit": limit})
        removed += delete(turn, rows)
        if len(rows) >= limit:
            return removed
        turn.session.run("trace_pruned_done", {"lane": lane, "below": below})
    removed += delete(turn, turn.session.rows("traces_loose", {"before": before, "limit": limit}))
    newest = turn.session.row("trace_newest")
    floor = (newest[0] or 0) - MOST_TRACES if newest is not None else 0
    if floor > 0:
        removed += delete(turn, turn.session.rows("traces_surplus", {"floor": floor, "limit": limit}))
    return removed


def delete(turn: Turn, rows: list[Row]) -> int:
    """Delete traces by the ids in these rows, with their names. Returns their number."""
    if not rows:
        return 0
    where = {"ids": msgspec.json.encode([row[0] for row in rows]).decode()}
    turn.session.run("trace_names_delete", where)
    return turn.session.run("traces_delete", where)
