"""Timeline of one message: stored deliveries by group, the current holders, and the traces."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core import queries as q
from ackwise.core.errors import MessageNotFound
from ackwise.core.ids import LaneId
from ackwise.core.rows import GroupTimeline, GroupView, MessageHolder, Timeline, TimelineEvent, TraceRow
from ackwise.engine import catalog
from ackwise.engine.ports import Row
from ackwise.engine.reads.messages import LocatedMessage, MessagePlace, locate, message_at, missing
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.engine.reads.traces import traces_from

MOST_TRACES = 100
"""Traces of a timeline. `ListTraces` has the others."""


@answers(q.MessageTimeline)
def message_timeline(snapshot: Snapshot, query: q.MessageTimeline) -> Timeline:
    located = _locate(snapshot, query)
    message = message_at(snapshot, located) if located is not None else None
    if located is None or message is None:
        if query.partition_id is not None and query.transaction_id is not None:
            raise missing(query.partition_id, query.transaction_id)
        raise MessageNotFound(f"there is no message {query.seq} in lane {query.lane}")
    groups = [_group(snapshot, view, located.letters) for view in message.groups]
    known = {group.group for group in groups}
    # A deleted group leaves its dead letters behind.
    for letter in located.letters:
        if letter[4] not in known:
            groups.append(GroupTimeline(letter[4], "dead"))
            _add_letter(groups[-1], letter)
    return Timeline(message, groups, _traces(snapshot, located.partition_id, message.message.transaction_id))


def _locate(snapshot: Snapshot, query: q.MessageTimeline) -> LocatedMessage | None:
    if query.partition_id is not None and query.transaction_id is not None:
        return locate(snapshot, query.partition_id, query.transaction_id)
    session = snapshot.session
    lane = session.row("lane_by_id", {"id": query.lane})
    owner = catalog.queue_of_id(session, lane[2]) if lane else None
    part = session.row("part_by_id", {"id": lane[1]}) if lane else None
    if lane is None or owner is None or part is None or query.seq is None:
        return None
    letters = session.rows("dead_of_place", {"lane": lane[0], "seq": query.seq})
    return LocatedMessage(owner, part[1], part[2], MessagePlace(LaneId(lane[0]), query.seq), letters)


def _group(snapshot: Snapshot, view: GroupView, letters: list[Row]) -> GroupTimeline:
    timeline = GroupTimeline(view.group, view.state, view.failures, view.deliveries)
    letter = next((row for row in letters if row[4] == view.group), None)
    if letter is not None:
        _add_letter(timeline, letter)
    if view.state in ("leased", "waiting"):
        # The letter is older than a seek. The seek began these deliveries.
        timeline.events += map(_event, view.history)
        timeline.failures, timeline.deliveries = view.failures, view.deliveries
    if view.lease_id is not None and view.held_since is not None and view.deadline is not None:
        timeline.holder = MessageHolder(view.lease_id, view.owner, view.held_since, view.deadline)
    elif view.due_at is not None and view.due_at > snapshot.wall:
        timeline.due_at = view.due_at
    return timeline


def _add_letter(timeline: GroupTimeline, letter: Row) -> None:
    """Add the history and counts of a dead letter. After a seek the message may be in another state than `dead`."""
    timeline.events = [_event(line) for line in msgspec.json.decode(letter[13])] if letter[13] else []
    timeline.events.append(TimelineEvent(letter[16], "dead", None, letter[9] or None, letter[10] or None))
    timeline.letter_id, timeline.reason = letter[0], letter[8]
    timeline.failures, timeline.deliveries = letter[11], letter[12]


def _event(line: dict[str, Any]) -> TimelineEvent:
    """An event from a line of a history."""
    return TimelineEvent(
        line["at"],
        line["event"],
        line.get("owner"),
        line.get("error") or None,
        line.get("error_type"),
        line.get("trace"),
    )


def _traces(snapshot: Snapshot, partition_id: str, transaction_id: str) -> list[TraceRow]:
    where = {"part_uuid": partition_id, "txid": transaction_id, "after": 0, "limit": MOST_TRACES}
    return list(traces_from(snapshot.session, snapshot.session.rows("traces_of_message", where), MOST_TRACES))
