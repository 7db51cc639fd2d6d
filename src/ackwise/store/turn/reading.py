"""Finding messages by place and by transaction id."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from ackwise.core.ids import looks_minted, uuid_int, uuid_text
from ackwise.core.messages import Message
from ackwise.core.spans import Span, joined
from ackwise.store.segment import Segment, bounds, place_lane, place_seq, to_end
from ackwise.store.session import Session
from ackwise.store.turn.context import Looking


def segments(session: Session, lane: int, lo: int, hi: int) -> list[Segment]:
    """The segments that hold seqs of [lo, hi): no more than there are messages."""
    found = (Segment(*row) for row in session.rows("segment_range", {**bounds(lane, lo, hi), "limit": max(0, hi - lo)}))
    return [s for s in found if s.first < hi]


def sizes(session: Session, lane: int, lo: int, hi: int, limit: int | None = None) -> list[tuple[int, int, int]]:
    """The first and last seq of segments that hold seqs of [lo, hi), and how many bytes they have."""
    most = max(0, hi - lo)
    rows = session.rows("segment_sizes", {**bounds(lane, lo, hi), "limit": most if limit is None else min(limit, most)})
    return [(first, place_seq(pos), size) for pos, first, size in rows if first < hi]


NEAR = 256
"""Messages of a lane that are no further apart are read at once: they are in the same segment, or in the next."""


def messages(session: Session, lane: int, ranges: list[tuple[int, int]]) -> list[Message]:
    """The messages of disjoint ranges of a lane."""
    found = [one for lo, hi in joined(ranges, NEAR) for one in segments(session, lane, lo, hi)]
    firsts = [one.first for one in found]
    return [
        segment.message(seq)
        for lo, hi in ranges
        for segment in found[max(0, bisect_right(firsts, lo) - 1) : bisect_left(firsts, hi)]
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


_SPREAD = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_SIGN = 1 << 63


def hashes(looking: Looking, part: int, first: int, txids: list[str] | int) -> list[int]:
    """64-bit seeded hashes of the transaction ids of messages whose ids count up from `first`; a number: all minted.

    A minted transaction id is the message id and is never spelled out: it is already random and needs only spreading.
    """
    if isinstance(txids, int):
        start, seed = _minted(part, first), looking.seed_number
        return [(((start + _SPREAD * i ^ seed) + _SIGN) & _WORD) - _SIGN for i in range(txids)]
    if all(txids) and not any(map(looks_minted, txids)):
        return _texts(looking, part, txids)
    found = []
    for number, txid in enumerate(txids, first):
        minted = number if not txid else uuid_int(txid) if looks_minted(txid) else None
        if minted is None:
            found += _texts(looking, part, [txid])
        else:
            found.append((((_minted(part, minted) ^ looking.seed_number) + _SIGN) & _WORD) - _SIGN)
    return found


def _minted(part: int, number: int) -> int:
    """Counts up by `_SPREAD` with the number: ids of one push differ only in their low half."""
    return number * _SPREAD + (number >> 64) + part * _SPREAD


def _texts(looking: Looking, part: int, txids: list[str]) -> list[int]:
    seeded = looking.hasher(part).copy
    digests = []
    for txid in txids:
        one = seeded()
        one.update(txid.encode())
        digests.append(one.digest())
    return array("q", b"".join(digests)).tolist()


def candidates(looking: Looking, part: int, transaction_id: str) -> list[int]:
    """Places of a partition where this transaction id may have been used, newest first; negative ones are scheduled."""
    wanted = hashes(looking, part, 0, [transaction_id])[0]
    return looking.known.find([wanted]).get(wanted, [])[::-1]


def find_by_transaction(looking: Looking, part: int, transaction_id: str) -> tuple[int, int] | None:
    """(lane, seq) of the newest message of a partition with this transaction id; scheduled ones have no place yet."""
    for pos in candidates(looking, part, transaction_id):
        if pos < 0:
            continue
        segment = segment_with(looking.session, place_lane(pos), place_seq(pos))
        if segment is not None and segment.matches(place_seq(pos), transaction_id):
            return place_lane(pos), place_seq(pos)
    return None


def ids_in_spans(session: Session, spans: list[Span]) -> dict[str, tuple[int, int]]:
    """(lane, seq) of the messages of spans by transaction id; of one that comes twice the first."""
    found: dict[str, tuple[int, int]] = {}
    for span in spans:
        for segment in segments(session, span.lane, span.lo, span.hi):
            lo, hi = max(span.lo, segment.first), min(span.hi, segment.last + 1)
            numbers, txids, _, _ = segment.cells(lo, hi)
            for seq, (number, txid) in enumerate(zip(numbers, txids, strict=True), lo):
                found.setdefault(txid or uuid_text(number), (span.lane, seq))
    return found
