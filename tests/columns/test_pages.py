"""Columns of stored messages say what the messages say."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.columns import pages
from ackwise.columns.pages import STORED, Piece, Stored
from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.messages import JSON, NewMessage
from ackwise.store.segment import Columns, Segment, pack, pack_extras, place
from tests.columns.expected import Row, by_column, by_message, spelled, told
from tests.contract.support import Desk

PNG = NewMessage(b"\x89PNG", content_type="image/png", headers={"k": "v", "": "é"})
MIXED = [
    NewMessage(b'{"a": 1.0,  "b":[ ]}'),
    NewMessage('"é"'.encode(), transaction_id="mine"),
    NewMessage(b'"\xff"'),
    NewMessage(b'{"cut": ', headers={"why": "broken"}),
    NewMessage(b""),
    PNG,
    NewMessage(b"[1]", content_type="text/plain"),
    NewMessage(b"\xff\xfe", content_type="application/octet-stream", transaction_id="bytes"),
    NewMessage(b"7", headers={"only": "headers"}),
]


def everything(desk: Desk, queue: str = "q") -> list[pages.Range]:
    return [(one.lane, one.start, one.head) for one in desk.store.list_lanes(q.ListLanes(queue=queue))]


def check(desk: Desk) -> list[Row]:
    ranges = everything(desk)
    found = by_column(desk.store, ranges)
    assert found == by_message(desk.store, ranges)
    return found


def test_plain_messages(desk: Desk) -> None:
    desk.send([NewMessage(str(number).encode()) for number in range(700)])
    found = check(desk)
    assert [row["payload"] for row in found] == [str(number) for number in range(700)]
    assert all(row["transaction_id"] == row["message_id"] for row in found)


def test_all_kinds_beside_each_other(desk: Desk) -> None:
    desk.send(MIXED)
    found = check(desk)
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
def test_one_kind_alone(desk: Desk, kind: NewMessage) -> None:
    desk.send([kind])
    check(desk)


def test_transaction_ids_given_for_none_some_or_all(desk: Desk) -> None:
    for partition, given_ids in (("none", [None, None]), ("some", [None, "x", None]), ("all", ["y", "é"])):
        desk.send([NewMessage(b"1", transaction_id=one, partition=partition) for one in given_ids])
    check(desk)


def test_ids_that_do_not_count_up(desk: Desk) -> None:
    """Callers whose pushes share a commit share a segment as well."""
    desk.together(*(c.Push(queue="q", messages=[NewMessage(b"1"), NewMessage(b"2")]) for _ in range(50)))
    (segments,) = desk.store.read(everything(desk))
    assert not all(one.counts_up for one in segments)
    check(desk)


def test_a_scheduled_message_was_created_when_it_was_pushed(desk: Desk) -> None:
    pushed = desk.clock.now()
    desk.push("later", "later still", delay=60)
    desk.clock.advance(60)
    desk.push("now")
    desk.sweep("promote")
    found = check(desk)
    moments = {row["payload"]: row["created_at"] for row in found}
    assert moments["later"] == moments["later still"] < moments["now"]
    assert 0 <= (moments["later"].timestamp() * 1_000_000 - pushed) < 1000


def test_messages_pushed_one_by_one_at_different_times(desk: Desk) -> None:
    for number in range(5):
        desk.push(str(number))
        desk.advance(1.5)
    assert len({row["created_at"] for row in check(desk)}) == 5


def test_parts_of_segments_and_several_lanes(desk: Desk) -> None:
    for partition in ("a", "b"):
        for priority in (0, 3):
            desk.send([NewMessage(f"{n}".encode(), partition, priority, f"t{n}") for n in range(300)])
            desk.send([NewMessage(PNG.payload, partition, priority, None, PNG.headers, PNG.content_type)])
    lanes = [lane for lane, _, _ in everything(desk)]
    assert len(lanes) == 4
    ranges = [(lane, lo, hi) for lane in lanes for lo, hi in ((0, 1), (17, 255), (250, 301), (255, 256), (300, 301))]
    assert by_column(desk.store, ranges) == by_message(desk.store, ranges)
    for name in STORED:
        short = [{key: row[key] for key in ("lane", "seq", name)} for row in by_message(desk.store, ranges)]
        assert by_column(desk.store, ranges, [name]) == short


def test_more_than_a_page(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE", 100)
    for _ in range(4):
        desk.send([NewMessage(f"{n}".encode()) for n in range(70)])
    assert len(check(desk)) == 280
    ((lane, lo, hi),) = everything(desk)
    assert [len(page) for page in Stored(desk.store.read).pages([(lane, lo, hi)], ["payload"])] == [100, 100, 80]


def test_what_is_left_after_pruning(desk: Desk) -> None:
    for number in range(6):
        desk.push(str(number))
    ((lane, _, _),) = everything(desk)
    desk.do(c.AdvanceGroup(queue="q", group="g", lanes={lane: 4}))
    assert desk.do(c.PruneQueue(queue="q", lanes={lane: 3})).count == 3
    assert [row["payload"] for row in check(desk)] == ["3", "4", "5"]


def test_what_was_never_there_is_not_there(desk: Desk) -> None:
    desk.push("1")
    ((lane, _, _),) = everything(desk)
    assert by_column(desk.store, [(lane, 1, 9), (lane + 1, 0, 9), (lane, 0, 0)]) == []
    assert [row["seq"] for row in by_column(desk.store, [(lane, 0, 500)])] == [0]


def test_a_stream_holds_all_pages(desk: Desk) -> None:
    desk.send(MIXED)
    desk.push("x", partition="p")
    ranges, wanted = everything(desk), list(STORED)
    body = pages.stream(Stored(desk.store.read).pages(ranges, wanted), wanted)
    with pa.ipc.open_stream(body) as reader:
        assert reader.read_all().to_pylist() == by_column(desk.store, ranges)
    with pa.ipc.open_stream(pages.stream([], ["payload"])) as reader:
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
def test_any_segments_and_any_part_of_them(
    batches: list[list[tuple[bytes, str, dict[str, str], str]]], first_id: int, explicit: bool, data: st.DataObject
) -> None:
    pieces, expected, first = [], [], 0
    for batch in batches:
        extras = [pack_extras(headers, kind) for _, _, headers, kind in batch]
        columns = Columns(first_id, [txid for _, txid, _, _ in batch], [payload for payload, *_ in batch])
        columns.extras = extras if any(extras) else None
        if explicit:
            columns.runs = [(first_id + 3 * at, 1) for at in range(len(batch))]
        last = first + len(batch) - 1
        segment = Segment(place(7, last), first, 1_700_000_000_000_000, pack(columns))
        lo = data.draw(st.integers(first, last), "lo")
        hi = data.draw(st.integers(lo + 1, last + 1), "hi")
        pieces.append(Piece(segment, lo, hi))
        expected += [told(segment.message(seq)) for seq in range(lo, hi)]
        first, first_id = last + 1, first_id + (1 << 80)
    assert spelled([pages.page(7, pieces, list(STORED))]) == expected
