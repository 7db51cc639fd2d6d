"""Finding messages by place and by transaction id."""

from __future__ import annotations

from array import array
from typing import Any

from ackwise.core.ids import uuid_int
from ackwise.core.messages import Message
from ackwise.core.spans import Span
from ackwise.store.segment import Segment, bounds, place_lane, place_seq, to_end
from ackwise.store.session import Session
from ackwise.store.turn.context import Turn


def segments(session: Session, lane: int, lo: int, hi: int) -> list[Segment]:
    """The segments that hold seqs of [lo, hi)."""
    found = (Segment(*row) for row in session.rows("segment_range", bounds(lane, lo, hi)))
    return [s for s in found if s.first < hi]


def messages(session: Session, lane: int, lo: int, hi: int) -> list[Message]:
    return [
        segment.message(seq)
        for segment in segments(session, lane, lo, hi)
        for seq in range(max(lo, segment.first), min(hi, segment.last + 1))
    ]


def segment_with(session: Session, lane: int, seq: int) -> Segment | None:
    """The segment, or what dedupe kept of it, that holds a message."""
    for segment in segments(session, lane, seq, seq + 1):
        if segment.first <= seq <= segment.last:
            return segment
    row = session.row("husk_at", to_end(lane, seq))
    husk = Segment(*row) if row else None
    return husk if husk is not None and husk.first <= seq else None


def key_bytes(transaction_id: str) -> bytes:
    """What is hashed: the 16 bytes of a UUID, else the text. A minted transaction id is the message id, never spelled out."""
    number = uuid_int(transaction_id)
    return transaction_id.encode() if number is None else number.to_bytes(16, "big")


def hashes(hasher: Any, keys: list[bytes]) -> list[int]:
    """64-bit seeded hashes of transaction ids."""
    digests = []
    for key in keys:
        one = hasher.copy()
        one.update(key)
        digests.append(one.digest())
    return array("q", b"".join(digests)).tolist()


def find_by_transaction(turn: Turn, part: int, transaction_id: str) -> tuple[int, int] | None:
    """(lane, seq) of the newest message of a partition with this transaction id; scheduled ones have no place yet."""
    wanted = hashes(turn.hasher(part), [key_bytes(transaction_id)])[0]
    for pos in reversed(turn.dedupe.find([wanted]).get(wanted, [])):
        if pos < 0:
            continue
        segment = segment_with(turn.session, place_lane(pos), place_seq(pos))
        if segment is not None and segment.matches(place_seq(pos), transaction_id):
            return place_lane(pos), place_seq(pos)
    return None


def find_in_spans(turn: Turn, spans: list[Span], transaction_id: str) -> tuple[int, int] | None:
    """The same among handed-out messages only, for ids that dedupe has forgotten."""
    for span in spans:
        for segment in segments(turn.session, span.lane, span.lo, span.hi):
            for seq in range(max(span.lo, segment.first), min(span.hi, segment.last + 1)):
                if segment.matches(seq, transaction_id):
                    return span.lane, seq
    return None
