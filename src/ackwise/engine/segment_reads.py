"""Finds messages by position and by transaction id."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from ackwise.core.ids import LaneId, Seq, uuid_text
from ackwise.core.lane_range import join_near
from ackwise.core.messages import Message
from ackwise.core.spans import Span
from ackwise.engine.ports import Session
from ackwise.engine.segment import Segment, bounds, place_lane, place_seq, to_end
from ackwise.engine.turn import MessageFinder


def segments(session: Session, lane: int, lo: int, hi: int) -> list[Segment]:
    """Segments that contain messages of [lo, hi)."""
    rows = session.rows("segment_range", {**bounds(lane, lo, hi), "limit": max(0, hi - lo)})
    return [segment for row in rows if (segment := Segment(*row)).first < hi]


def sizes(session: Session, lane: int, lo: int, hi: int, limit: int | None = None) -> list[tuple[int, int, int]]:
    """(first seq, last seq, bytes) of the segments that contain messages of [lo, hi)."""
    most = max(0, hi - lo)
    rows = session.rows("segment_sizes", {**bounds(lane, lo, hi), "limit": most if limit is None else min(limit, most)})
    return [(first, place_seq(pos), size) for pos, first, size in rows if first < hi]


NEAR = 256
"""Largest gap between messages of a lane that one read covers: they share a segment or lie in adjacent ones."""


def messages(session: Session, lane: int, ranges: list[tuple[int, int]]) -> list[Message]:
    """The messages of disjoint ranges of a lane."""
    loaded = [segment for lo, hi in join_near(ranges, NEAR) for segment in segments(session, lane, lo, hi)]
    firsts = [segment.first for segment in loaded]
    return [
        segment.message(seq)
        for lo, hi in ranges
        for segment in loaded[max(0, bisect_right(firsts, lo) - 1) : bisect_left(firsts, hi)]
        for seq in range(max(lo, segment.first), min(hi, segment.last + 1))
    ]


def segment_with(session: Session, lane: int, seq: int) -> Segment | None:
    """The segment of a message, or its husk if retention removed the segment."""
    for segment in segments(session, lane, seq, seq + 1):
        if segment.first <= seq <= segment.last:
            return segment
    row = session.row("husk_at", to_end(lane, seq))
    husk = Segment(*row) if row else None
    return husk if husk is not None and husk.first <= seq else None


def candidates(finder: MessageFinder, part: int, transaction_id: str) -> list[int]:
    """Places of messages that may have this transaction id, newest first. Scheduled messages have negative places."""
    wanted = finder.hashes(part, 0, [transaction_id])[0]
    return finder.known.find([wanted]).get(wanted, [])[::-1]


def find_by_transaction(finder: MessageFinder, part: int, transaction_id: str) -> tuple[LaneId, Seq] | None:
    """(lane, seq) of the newest message of a partition with this transaction id, without scheduled messages."""
    for pos in candidates(finder, part, transaction_id):
        if pos < 0:
            continue
        segment = segment_with(finder.session, place_lane(pos), place_seq(pos))
        if segment is not None and segment.matches(place_seq(pos), transaction_id):
            return LaneId(place_lane(pos)), Seq(place_seq(pos))
    return None


def ids_in_spans(session: Session, spans: list[Span]) -> dict[str, tuple[LaneId, Seq]]:
    """(lane, seq) of the messages of spans by transaction id. Of two messages with one id the first counts."""
    places: dict[str, tuple[LaneId, Seq]] = {}
    for span in spans:
        for segment in segments(session, span.lane, span.lo, span.hi):
            lo, hi = max(span.lo, segment.first), min(span.hi, segment.last + 1)
            numbers, txids, _, _ = segment.cells(lo, hi)
            for seq, (number, txid) in enumerate(zip(numbers, txids, strict=True), lo):
                places.setdefault(txid or uuid_text(number), (span.lane, Seq(seq)))
    return places
