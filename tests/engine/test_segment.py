"""Segments: packed and read back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ackwise.core.ids import uuid_text
from ackwise.core.messages import JSON
from ackwise.engine import segment
from ackwise.engine.segment import MessageColumns, Segment

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
texts = st.tuples(
    text, st.binary(max_size=40), st.none() | st.dictionaries(text, text, max_size=2), st.sampled_from([JSON, "x/y"])
)
batches = st.lists(st.lists(texts, min_size=1, max_size=6), min_size=1, max_size=4)
Item = tuple[str, bytes, dict[str, str] | None, str]


def collected(batch: list[list[Item]]) -> MessageColumns:
    """Runs pushed by several callers of one turn."""
    columns: MessageColumns | None = None
    for number, run in enumerate(batch):
        extras = [segment.pack_extras(headers, kind) for _, _, headers, kind in run]
        one = MessageColumns(
            1000 * number + 7, [t for t, *_ in run], [p for _, p, *_ in run], extras if any(extras) else None
        )
        if columns is None:
            columns = one
        else:
            columns.extend(one)
    assert columns is not None
    return columns


def unpacked(columns: MessageColumns, first: int = 5) -> Segment:
    last = first + len(columns) - 1
    return Segment(segment.place(3, last), first, 99, segment.pack(columns))


@given(batches)
def test_messages_come_back_as_they_went_in(batch: list[list[Item]]) -> None:
    found = unpacked(collected(batch))
    flat = [item for run in batch for item in run]
    numbers = [1000 * number + 7 + at for number, run in enumerate(batch) for at in range(len(run))]
    assert (found.lane, found.first, found.last, found.n) == (3, 5, 4 + len(flat), len(flat))
    for at, ((txid, payload, headers, kind), number) in enumerate(zip(flat, numbers, strict=True), 5):
        message = found.message(at)
        assert (message.id_int, message.txid, message.payload) == (number, txid, payload)
        assert (message.headers, message.content_type) == (headers or {}, kind)
        assert (message.seq, message.lane, message.created_at) == (at, 3, 99)


@given(batches, st.data())
def test_part_is_a_part(batch: list[list[Item]], data: st.DataObject) -> None:
    columns = collected(batch)
    lo = data.draw(st.integers(0, len(columns) - 1))
    hi = data.draw(st.integers(lo + 1, len(columns)))
    whole, part = unpacked(columns), unpacked(columns.part(lo, hi))
    for at in range(hi - lo):
        one, other = part.message(5 + at), whole.message(5 + lo + at)
        assert (one.id_int, one.txid, one.payload, one.headers) == (
            other.id_int,
            other.txid,
            other.payload,
            other.headers,
        )


@given(batches)
def test_husk_keeps_the_ids_only(batch: list[list[Item]]) -> None:
    found = unpacked(collected(batch))
    husk = Segment(segment.place(3, found.last), 5, 99, found.husk())
    for seq in range(found.first, found.last + 1):
        assert (husk.id_int(seq), husk.txid(seq)) == (found.id_int(seq), found.txid(seq))
        assert husk.payload(seq) == b""
        wanted = found.txid(seq) or uuid_text(found.id_int(seq))
        assert husk.matches(seq, wanted)
        assert not husk.matches(seq, wanted + "x")


@given(texts)
def test_snapshot_is_one_message(item: Item) -> None:
    message = unpacked(collected([[item]])).message(5)
    assert segment.snapshot(3, 5, 99, segment.pack_message(message)) == message


@given(st.integers(0, 2**23 - 1), st.integers(0, 2**40 - 1))
def test_place_is_a_lane_and_a_seq(lane: int, seq: int) -> None:
    pos = segment.place(lane, seq)
    assert (segment.place_lane(pos), segment.place_seq(pos)) == (lane, seq)
    assert pos < 2**63
    assert segment.place(lane, seq) < segment.place(lane + 1, 0)


@given(st.integers(1, 50), st.integers(0, 5000), st.integers(1, 600))
def test_bounds_find_every_segment_of_a_range(lane: int, lo: int, size: int) -> None:
    """A segment that holds a seq of [lo, hi) ends at most a segment's length behind it."""
    where = segment.bounds(lane, lo, lo + size)
    for seq in (lo, lo + size - 1):
        for last in (seq, seq + segment.MAX_MESSAGES - 1):
            assert where["lo_pos"] <= segment.place(lane, last) < where["end_pos"]
    assert where["end_pos"] <= segment.place(lane + 1, 0)
