"""Timeline of one message: every delivery that is still known, group by group, with its holder and its traces."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core import queries as q
from ackwise.core.errors import MessageNotFound
from ackwise.core.ids import LaneId, lease_id
from ackwise.core.rows import GroupTimeline, GroupView, MessageHolder, Timeline, TimelineEvent, TraceRow
from ackwise.engine import catalog
from ackwise.engine.catalog import GroupRow
from ackwise.engine.ports import Row
from ackwise.engine.reads.messages import LocatedMessage, MessagePlace, groups_of, locate, message_at, missing
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.engine.reads.traces import traces_from

MOST_TRACES = 100
"""Traces of a timeline. `ListTraces` has the others."""


@answers(q.MessageTimeline)
def message_timeline(snapshot: Snapshot, query: q.MessageTimeline) -> Timeline:
    located = _locate(snapshot, query)
    found = message_at(snapshot, located) if located is not None else None
    if located is None or found is None:
        if query.partition_id is not None and query.transaction_id is not None:
            raise missing(query.partition_id, query.transaction_id)
        raise MessageNotFound(f"there is no message {query.seq} in lane {query.lane}")
    views = {view.group: view for view in found.groups}
    groups = [
        _group(snapshot, group, located, views[group.name]) for group in groups_of(snapshot.session, located.owner)
    ]
    known = {group.group for group in groups}
    # A deleted group leaves its dead letters behind.
    for letter in located.letters:
        if letter[4] not in known:
            groups.append(GroupTimeline(letter[4], "dead"))
            _add_letter(groups[-1], letter)
    return Timeline(found, groups, _traces(snapshot, located.partition_id, found.message.transaction_id))


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


def _group(snapshot: Snapshot, group: GroupRow, located: LocatedMessage, view: GroupView) -> GroupTimeline:
    timeline = GroupTimeline(group.name, view.state, view.failures, view.deliveries)
    place = located.place
    letter = next((row for row in located.letters if row[4] == group.name), None)
    if letter is not None:
        _add_letter(timeline, letter)
    where = {"lane": place.lane, "grp": group.id, "seq": place.seq}
    span = snapshot.session.row("span_holder", where) if place.scheduled is None else None
    if span is not None and span[0] <= place.seq:
        _, due_at, history, no, tag, owner, made_at, deadline = span
        # A letter that is left died before a seek, which began the deliveries of the span.
        timeline.events += _events(history)
        timeline.failures, timeline.deliveries = view.failures, view.deliveries
        if no is not None:
            since, until = snapshot.shown(made_at), snapshot.shown(deadline)
            timeline.holder = MessageHolder(lease_id(no, tag), owner, since, until)
        elif due_at > snapshot.now:
            timeline.due_at = snapshot.shown(due_at)
    return timeline


def _add_letter(timeline: GroupTimeline, letter: Row) -> None:
    """Add what a dead letter knows. After a seek the message may be in another state than `dead`."""
    timeline.events = _events(letter[13])
    timeline.events.append(TimelineEvent(letter[16], "dead", None, letter[9] or None, letter[10] or None))
    timeline.letter_id, timeline.reason = letter[0], letter[8]
    timeline.failures, timeline.deliveries = letter[11], letter[12]


def _events(history: str) -> list[TimelineEvent]:
    lines: list[dict[str, Any]] = msgspec.json.decode(history) if history else []
    return [
        TimelineEvent(
            line["at"],
            line["event"],
            line.get("owner"),
            line.get("error") or None,
            line.get("error_type"),
            line.get("trace"),
        )
        for line in lines
    ]


def _traces(snapshot: Snapshot, partition_id: str, transaction_id: str) -> list[TraceRow]:
    where = {"part_uuid": partition_id, "txid": transaction_id, "after": 0, "limit": MOST_TRACES}
    return list(traces_from(snapshot.session, snapshot.session.rows("traces_of_message", where), MOST_TRACES))
