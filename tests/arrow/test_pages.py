"""Columns of stored messages say what the messages say."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.arrow import message_pages
from ackwise.arrow.message_pages import STORED, SegmentRange, StorePageReader
from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.ids import LaneId
from ackwise.core.lane_range import LaneRange
from ackwise.core.messages import JSON, NewMessage
from ackwise.engine.segment import MessageColumns, Segment, pack, pack_extras, place
from tests.arrow.expected import MIXED, PNG, Row, by_column, by_message, spelled, told
from tests.engine.store_harness import StoreHarness


def everything(harness: StoreHarness, queue: str = "q") -> list[LaneRange]:
    return [LaneRange(LaneId(row.lane), row.start, row.head) for row in harness.store.ask(q.ListLanes(queue=queue))]


def check(harness: StoreHarness) -> list[Row]:
    ranges = everything(harness)
    found = by_column(harness.store, ranges)
    assert found == by_message(harness.store, ranges)
    return found


def test_pages_of_plain_messages_equal_the_messages(harness: StoreHarness) -> None:
    harness.send([NewMessage(str(number).encode()) for number in range(700)])
    found = check(harness)
    assert [row["payload"] for row in found] == [str(number) for number in range(700)]
    assert all(row["transaction_id"] == row["message_id"] for row in found)


def test_pages_of_mixed_kinds_keep_payload_and_type(harness: StoreHarness) -> None:
    harness.send(MIXED)
    found = check(harness)
    assert [row["payload"] for row in found[2:5]] == ['{"$base64":"Iv8i"}', '{"cut": ', ""]
    assert [row["content_type"] for row in found[2:8]] == [
        "application/octet-stream",
        JSON,
        JSON,
        "image/png",
        "text/plain",
        "application/octet-stream",
    ]


@pytest.mark.parametrize("kind", MIXED)
def test_pages_of_a_single_kind_equal_the_messages(harness: StoreHarness, kind: NewMessage) -> None:
    harness.send([kind])
    check(harness)


def test_transaction_ids_given_for_none_some_or_all(harness: StoreHarness) -> None:
    for partition, given_ids in (("none", [None, None]), ("some", [None, "x", None]), ("all", ["y", "é"])):
        harness.send([NewMessage(b"1", transaction_id=one, partition=partition) for one in given_ids])
    check(harness)


def test_ids_that_do_not_count_up(harness: StoreHarness) -> None:
    """Callers whose pushes share a commit share a segment as well."""
    harness.together(*(c.Push(queue="q", messages=[NewMessage(b"1"), NewMessage(b"2")]) for _ in range(50)))
    (segments,) = harness.store.read(everything(harness))
    assert not all(one.counts_up for one in segments)
    check(harness)


def test_scheduled_message_was_created_when_it_was_pushed(harness: StoreHarness) -> None:
    pushed = harness.clock.now()
    harness.push("later", "later still", delay=60)
    harness.clock.advance(60)
    harness.push("now")
    harness.sweep("promote")
    found = check(harness)
    moments = {row["payload"]: row["created_at"] for row in found}
    assert moments["later"] == moments["later still"] < moments["now"]
    assert 0 <= (moments["later"].timestamp() * 1_000_000 - pushed) < 1000


def test_messages_pushed_one_by_one_at_different_times(harness: StoreHarness) -> None:
    for number in range(5):
        harness.push(str(number))
        harness.advance(1.5)
    assert len({row["created_at"] for row in check(harness)}) == 5


def test_parts_of_segments_and_several_lanes(harness: StoreHarness) -> None:
    for partition in ("a", "b"):
        for priority in (0, 3):
            harness.send([NewMessage(f"{n}".encode(), partition, priority, f"t{n}") for n in range(300)])
            harness.send([NewMessage(PNG.payload, partition, priority, None, PNG.headers, PNG.content_type)])
    lanes = [lane for lane, _, _ in everything(harness)]
    assert len(lanes) == 4
    bounds = ((0, 1), (17, 255), (250, 301), (255, 256), (300, 301))
    ranges = [LaneRange(lane, lo, hi) for lane in lanes for lo, hi in bounds]
    assert by_column(harness.store, ranges) == by_message(harness.store, ranges)
    for name in STORED:
        short = [{key: row[key] for key in ("lane", "seq", name)} for row in by_message(harness.store, ranges)]
        assert by_column(harness.store, ranges, [name]) == short


def test_messages_above_a_page_come_in_pages(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_pages, "PAGE", 100)
    for _ in range(4):
        harness.send([NewMessage(f"{n}".encode()) for n in range(70)])
    assert len(check(harness)) == 280
    ((lane, lo, hi),) = everything(harness)
    assert [len(page) for page in StorePageReader(harness.store).pages([LaneRange(lane, lo, hi)], ["payload"])] == [
        100,
        100,
        80,
    ]


def test_pages_after_pruning_have_the_remaining_messages(harness: StoreHarness) -> None:
    for number in range(6):
        harness.push(str(number))
    ((lane, _, _),) = everything(harness)
    harness.do(c.AdvanceGroup(queue="q", group="g", lanes={lane: 4}))
    assert harness.do(c.PruneQueue(queue="q", lanes={lane: 3})).count == 3
    assert [row["payload"] for row in check(harness)] == ["3", "4", "5"]


def test_page_of_large_messages_is_cut_by_bytes(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_pages, "PAGE_BYTES", 3000)
    for number in range(7):
        harness.send([NewMessage(b"%d" % number * 1000)])
    (whole,) = everything(harness)
    pages = list(StorePageReader(harness.store).pages([whole], ["payload"]))
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [row["seq"] for row in by_column(harness.store, [whole])] == list(range(7))


def test_pages_of_unused_ranges_are_empty(harness: StoreHarness) -> None:
    harness.push("1")
    ((lane, _, _),) = everything(harness)
    empty = [LaneRange(lane, 1, 9), LaneRange(LaneId(lane + 1), 0, 9), LaneRange(lane, 0, 0)]
    assert by_column(harness.store, empty) == []
    assert [row["seq"] for row in by_column(harness.store, [LaneRange(lane, 0, 500)])] == [0]


def test_stream_holds_all_pages(harness: StoreHarness) -> None:
    harness.send(MIXED)
    harness.push("x", partition="p")
    ranges, wanted = everything(harness), list(STORED)
    body = b"".join(message_pages.stream(StorePageReader(harness.store).pages(ranges, wanted), wanted))
    with pa.ipc.open_stream(body) as reader:
        assert reader.read_all().to_pylist() == by_column(harness.store, ranges)
    with pa.ipc.open_stream(b"".join(message_pages.stream([], ["payload"]))) as reader:
        empty = reader.read_all()
    assert (empty.num_rows, empty.schema.names) == (0, ["lane", "seq", "payload"])


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
kinds = st.sampled_from([JSON, "text/plain", "application/octet-stream"])
messages = st.lists(
    st.tuples(st.binary(max_size=12) | texts.map(str.encode), texts, st.dictionaries(texts, texts, max_size=2), kinds),
    min_size=1,
    max_size=12,
)
first_ids = st.sampled_from(
    [0x01890A5D_AC96_7000_8000_000000000000, (0x01890A5DAC96_7FFF << 64) | 0x9FFF_FFFF_FFFF_FFF8]
)


@given(st.lists(messages, min_size=1, max_size=4), first_ids, st.booleans(), st.data())
def test_pages_of_random_segments_equal_the_messages(
    batches: list[list[tuple[bytes, str, dict[str, str], str]]], first_id: int, explicit: bool, data: st.DataObject
) -> None:
    pieces, expected, first = [], [], 0
    for batch in batches:
        extras = [pack_extras(headers, kind) for _, _, headers, kind in batch]
        columns = MessageColumns(first_id, [txid for _, txid, _, _ in batch], [payload for payload, *_ in batch])
        columns.extras = extras if any(extras) else None
        if explicit:
            columns.runs = [(first_id + 3 * at, 1) for at in range(len(batch))]
        last = first + len(batch) - 1
        segment = Segment(place(7, last), first, 1_700_000_000_000_000, pack(columns))
        lo = data.draw(st.integers(first, last), "lo")
        hi = data.draw(st.integers(lo + 1, last + 1), "hi")
        pieces.append(SegmentRange(segment, lo, hi))
        expected += [told(segment.message(seq)) for seq in range(lo, hi)]
        first, first_id = last + 1, first_id + (1 << 80)
    assert spelled([message_pages.build_page(7, pieces, list(STORED))]) == expected
