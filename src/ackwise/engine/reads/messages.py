"""Finds one message, with its state per group."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ackwise.core import queries as q
from ackwise.core.errors import MessageNotFound
from ackwise.core.ids import LaneId, lease_id
from ackwise.core.messages import Message
from ackwise.core.rows import FoundMessage, GroupView
from ackwise.core.validation import MICROS
from ackwise.engine import catalog, dead_letters, segment_reads
from ackwise.engine.catalog import GroupRow, QueueRow
from ackwise.engine.ports import Row, Session
from ackwise.engine.reads import queues
from ackwise.engine.reads.dead_letters import letter_from
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.engine.segment import Segment, place_lane, place_seq, snapshot, to_end
from ackwise.engine.turn import MessageFinder

_PAGE = 64


class MessagePlace(NamedTuple):
    """Lane and seq of a message, or its row among the scheduled messages."""

    lane: LaneId
    seq: int
    scheduled: Row | None = None


class LocatedMessage(NamedTuple):
    """Where a message is, and its dead letters, newest first."""

    owner: QueueRow
    partition: str
    partition_id: str
    place: MessagePlace
    letters: list[Row]


@answers(q.FindMessage)
def find_message(snapshot: Snapshot, query: q.FindMessage) -> FoundMessage:
    located = locate(snapshot, query.partition_id, query.transaction_id, query.near)
    message = message_at(snapshot, located) if located is not None else None
    if message is None:
        raise missing(query.partition_id, query.transaction_id)
    return message


def locate(
    snapshot: Snapshot, partition_id: str, transaction_id: str, near: tuple[int, int] | None = None
) -> LocatedMessage | None:
    """The newest message of a partition with a transaction id."""
    session = snapshot.session
    part = session.row("part_by_uuid", {"uuid": partition_id})
    owner = catalog.queue_of_id(session, part[1]) if part else None
    if part is None or owner is None:
        return None
    letters = session.rows("dead_of_message", {"part": part[0], "txid": transaction_id})
    finder = MessageFinder(session, snapshot.known, snapshot.seed)
    place = _locate(finder, part[0], transaction_id, near, snapshot.wall) or _place_of_letter(letters)
    if place is None:
        return None
    letters = [row for row in letters if (row[5], row[6]) == place[:2]]
    return LocatedMessage(owner, part[2], partition_id, place, letters)


def message_at(snapshot: Snapshot, located: LocatedMessage) -> FoundMessage | None:
    """A message with its state per group. None if it is neither stored nor a dead letter."""
    session, owner, place, letters = snapshot.session, located.owner, located.place, located.letters
    message = _message(session, place, letters)
    if message is None:
        return None
    return FoundMessage(
        message=message,
        queue=catalog.info(owner),
        partition=located.partition,
        partition_id=located.partition_id,
        priority=_priority(session, place),
        due_at=snapshot.shown(place.scheduled[4]) if place.scheduled else None,
        groups=[_view(snapshot, group, place, letters) for group in groups_of(session, owner)],
        dead=[letter_from(row) for row in letters],
    )


def groups_of(session: Session, owner: QueueRow) -> list[GroupRow]:
    return [catalog.group_from(row) for row in session.rows("groups_of_queue", {"queue": owner.id})]


def missing(partition_id: str, transaction_id: str) -> MessageNotFound:
    return MessageNotFound(
        f"there is no message {transaction_id!r} in this partition",
        partition_id=partition_id,
        transaction_id=transaction_id,
    )


def _locate(
    finder: MessageFinder, part: int, transaction_id: str, near: tuple[int, int] | None, now: int
) -> MessagePlace | None:
    """The place of a message. Looks at `near`, then asks the dedupe index, then searches older messages."""
    session = finder.session
    if near is not None and (place := _at(session, part, near, transaction_id)) is not None:
        return place
    for pos in segment_reads.candidates(finder, part, transaction_id):
        if pos < 0:
            row = session.row("scheduled_by_no", {"no": -pos})
            if row is not None and _scheduled_segment(row).matches(0, transaction_id):
                return MessagePlace(LaneId(0), 0, row)
            continue
        segment = segment_reads.segment_with(session, place_lane(pos), place_seq(pos))
        if segment is not None and segment.matches(place_seq(pos), transaction_id):
            return MessagePlace(LaneId(place_lane(pos)), place_seq(pos))
    cutoff = _forgotten_before(session, now) if near is None else None
    return _among_old(session, part, transaction_id, cutoff) if cutoff is not None else None


def _at(session: Session, part: int, near: tuple[int, int], transaction_id: str) -> MessagePlace | None:
    """The place `near`, if the message lies there."""
    lane, seq = near
    row = session.row("lane_by_id", {"id": lane})
    if row is None or row[1] != part or not row[5] <= seq < row[4]:
        return None
    segment = segment_reads.segment_with(session, lane, seq)
    return MessagePlace(LaneId(lane), seq) if segment is not None and segment.matches(seq, transaction_id) else None


def _scheduled_segment(row: Row) -> Segment:
    return Segment(0, 0, row[5], row[6])


def _forgotten_before(session: Session, now: int) -> int | None:
    """The instant before which the dedupe index may lack ids. None if all windows are endless."""
    windows = catalog.dedupe_windows(session)
    longest = windows[1] if windows is not None else 0.0
    return now - round(longest * MICROS) if longest else None


def _among_old(session: Session, part: int, transaction_id: str, cutoff: int) -> MessagePlace | None:
    for lane, _, _, _, _, start in session.rows("lanes_of_part", {"part": part}):
        seq = start
        while True:
            rows = session.rows("segments_first", {**to_end(lane, seq), "limit": _PAGE})
            segments = [segment for segment in (Segment(*row) for row in rows) if segment.created_at <= cutoff]
            for segment in segments:
                for seq in range(segment.first, segment.last + 1):
                    if segment.matches(seq, transaction_id):
                        return MessagePlace(lane, seq)
            if len(segments) < _PAGE:
                break
            seq = segments[-1].last + 1
    return None


def _place_of_letter(letters: list[Row]) -> MessagePlace | None:
    """The place of the newest dead letter, whose message may be removed."""
    return MessagePlace(letters[0][5], letters[0][6]) if letters else None


def _message(session: Session, place: MessagePlace, letters: list[Row]) -> Message | None:
    if place.scheduled is not None:
        return _scheduled_segment(place.scheduled).message(0)
    stored = segment_reads.messages(session, place.lane, [(place.seq, place.seq + 1)])
    if stored:
        return stored[0]
    return snapshot(place.lane, place.seq, letters[0][15], letters[0][14]) if letters else None


def _priority(session: Session, place: MessagePlace) -> int:
    if place.scheduled is not None:
        return int(place.scheduled[3])
    row = session.row("lane_by_id", {"id": place.lane})
    assert row is not None
    return int(row[3])


def _view(view: Snapshot, group: GroupRow, place: MessagePlace, letters: list[Row]) -> GroupView:
    session = view.session
    if place.scheduled is not None:
        return GroupView(group.name, "scheduled")
    state = queues.states_of(session, group, place.lane, place.seq, place.seq + 1).get(place.seq, "skipped")
    if state in ("leased", "waiting"):
        held = session.row("span_look", {"lane": place.lane, "grp": group.id, "seq": place.seq})
        assert held is not None
        deadline = None if held[3] is None else view.shown(held[3])
        return GroupView(
            group.name, state, deadline, held[1], held[2], dead_letters.last_error(held[4]),
            lease_id=None if held[5] is None else lease_id(held[5], held[6]), owner=held[7] or "",
            due_at=view.shown(held[8]) if state == "waiting" else None, history=_history(held[4]),
            held_since=None if held[9] is None else view.shown(held[9]),
        )  # fmt: skip
    letter = next((row for row in letters if row[4] == group.name), None) if state == "dead" else None
    if letter is not None:
        return GroupView(
            group.name, state, None, letter[11], letter[12], letter[9] or None, history=_history(letter[13])
        )
    return GroupView(group.name, state)


def _history(text: str) -> list[dict[str, object]]:
    return msgspec.json.decode(text) if text else []
