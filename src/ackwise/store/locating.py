"""One message, found by its transaction id on the read side, and how every group stands to it."""

from __future__ import annotations

from typing import NamedTuple

from ackwise.core import queries as q
from ackwise.core.errors import MessageNotFound
from ackwise.core.limits import MICROS
from ackwise.core.messages import Message
from ackwise.store import reads
from ackwise.store.segment import Segment, place_lane, place_seq, snapshot, to_end
from ackwise.store.session import Row, Session
from ackwise.store.turn import catalog, dead, reading
from ackwise.store.turn.catalog import GroupRow
from ackwise.store.turn.context import Looking

_PAGE = 64


class _Spot(NamedTuple):
    """Where a message is: its place in a lane, or the row in which it waits for one."""

    lane: int
    seq: int
    scheduled: Row | None = None


def find_message(looking: Looking, query: q.FindMessage, now: int) -> q.FoundMessage:
    query.check()
    session = looking.session
    part = session.row("part_by_uuid", {"uuid": query.partition_id})
    owner = catalog.queue_of_id(session, part[1]) if part else None
    if part is None or owner is None:
        raise _missing(query)
    letters = session.rows("dead_of_message", {"part": part[0], "txid": query.transaction_id})
    spot = _locate(looking, part[0], query.transaction_id, now) or _of_letter(letters)
    letters = [row for row in letters if spot is not None and (row[5], row[6]) == spot[:2]]
    message = _message(session, spot, letters) if spot is not None else None
    if spot is None or message is None:
        raise _missing(query)
    groups = [catalog.group_from(row) for row in session.rows("groups_of_queue", {"queue": owner.id})]
    return q.FoundMessage(
        message=message,
        queue=catalog.info(owner),
        partition=part[2],
        partition_id=query.partition_id,
        priority=_priority(session, spot),
        due_at=spot.scheduled[4] if spot.scheduled else None,
        groups=[_view(session, group, spot, letters) for group in groups],
        dead=[reads.letter_from(row) for row in letters],
    )


def _missing(query: q.FindMessage) -> MessageNotFound:
    return MessageNotFound(
        f"there is no message {query.transaction_id!r} in this partition",
        partition_id=query.partition_id,
        transaction_id=query.transaction_id,
    )


def _locate(looking: Looking, part: int, transaction_id: str, now: int) -> _Spot | None:
    """Dedupe knows the place while it remembers the id; what it has forgotten is looked for among the old messages."""
    session = looking.session
    for pos in reading.candidates(looking, part, transaction_id):
        if pos < 0:
            row = session.row("scheduled_by_no", {"no": -pos})
            if row is not None and _waiting(row).matches(0, transaction_id):
                return _Spot(0, 0, row)
            continue
        segment = reading.segment_with(session, place_lane(pos), place_seq(pos))
        if segment is not None and segment.matches(place_seq(pos), transaction_id):
            return _Spot(place_lane(pos), place_seq(pos))
    cutoff = _forgotten_before(session, now)
    return _among_old(session, part, transaction_id, cutoff) if cutoff is not None else None


def _waiting(row: Row) -> Segment:
    return Segment(0, 0, row[5], row[6])


def _forgotten_before(session: Session, now: int) -> int | None:
    """Ids older than every queue's dedupe window may be forgotten; None when all windows are endless."""
    windows = catalog.dedupe_windows(session)
    longest = windows[1] if windows is not None else 0.0
    return now - round(longest * MICROS) if longest else None


def _among_old(session: Session, part: int, transaction_id: str, cutoff: int) -> _Spot | None:
    for lane, _, _, _, _, start in session.rows("lanes_of_part", {"part": part}):
        seq = start
        while True:
            rows = session.rows("segments_first", {**to_end(lane, seq), "limit": _PAGE})
            segments = [segment for segment in (Segment(*row) for row in rows) if segment.created_at <= cutoff]
            for segment in segments:
                for seq in range(segment.first, segment.last + 1):
                    if segment.matches(seq, transaction_id):
                        return _Spot(lane, seq)
            if len(segments) < _PAGE:
                break
            seq = segments[-1].last + 1
    return None


def _of_letter(letters: list[Row]) -> _Spot | None:
    """The place of the newest dead letter: its message may be gone."""
    return _Spot(letters[0][5], letters[0][6]) if letters else None


def _message(session: Session, spot: _Spot, letters: list[Row]) -> Message | None:
    if spot.scheduled is not None:
        return _waiting(spot.scheduled).message(0)
    stored = reading.messages(session, spot.lane, [(spot.seq, spot.seq + 1)])
    if stored:
        return stored[0]
    return snapshot(spot.lane, spot.seq, letters[0][15], letters[0][14]) if letters else None


def _priority(session: Session, spot: _Spot) -> int:
    if spot.scheduled is not None:
        return int(spot.scheduled[3])
    row = session.row("lane_by_id", {"id": spot.lane})
    assert row is not None
    return int(row[3])


def _view(session: Session, group: GroupRow, spot: _Spot, letters: list[Row]) -> q.GroupView:
    if spot.scheduled is not None:
        return q.GroupView(group.name, "scheduled")
    state = reads.states_of(session, group, spot.lane, spot.seq, spot.seq + 1).get(spot.seq, "skipped")
    if state in ("leased", "waiting"):
        held = session.row("span_look", {"lane": spot.lane, "grp": group.id, "seq": spot.seq})
        assert held is not None
        return q.GroupView(group.name, state, held[3], held[1], held[2], dead.last_error(held[4]))
    letter = next((row for row in letters if row[4] == group.name), None) if state == "dead" else None
    if letter is not None:
        return q.GroupView(group.name, state, None, letter[11], letter[12], letter[9] or None)
    return q.GroupView(group.name, state)
