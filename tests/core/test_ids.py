"""Spellings of ids, there and back, and what is not one."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ackwise.core import ids

numbers = st.integers(0, 2**63 - 1)
tags = st.integers(0, 2**32 - 1)


@given(numbers, tags, numbers, numbers)
def test_delivery_id_comes_back(no: int, tag: int, lane: int, seq: int) -> None:
    text = ids.delivery_id(no, tag, lane, seq)
    assert ids.parse_delivery_id(text) == (no, tag, lane, seq)
    assert len(text) <= 128
    assert not set(text) & set(",\"'\\ ")


@given(numbers, tags)
def test_lease_id_comes_back(no: int, tag: int) -> None:
    assert ids.parse_lease_id(ids.lease_id(no, tag)) == (no, tag)


@given(st.text() | st.binary() | st.none() | st.integers())
def test_garbage_is_no_id(garbage: object) -> None:
    assert ids.parse_lease_id(garbage) is None
    assert ids.parse_delivery_id(garbage) is None


@pytest.mark.parametrize(
    "text",
    [
        "L1-0000000", "L1-000000000", "L-00000000", "l1-00000000", "L1-0000000g", "L1-00000000 ", "L1-00000000\n",
        "Lzzzzzzzzzzzzz-00000000", "L1-00000000.1", "L1-00000000.1.1.1", "L1-00000000.-1.1", "L1-00000000.1.",
        "L1-00000000.zzzzzzzzzzzzz.1", "L\u0661-00000000.1.1",
    ],
)  # fmt: skip
def test_nearly_an_id_is_no_id(text: str) -> None:
    assert ids.parse_lease_id(text) is None
    assert ids.parse_delivery_id(text) is None


@given(st.integers(0, 2**128 - 1))
def test_uuids_are_spelled_as_everywhere(number: int) -> None:
    text = ids.uuid_text(number)
    assert text == str(uuid.UUID(int=number))
    assert ids.uuid_int(text) == number


@given(st.text(max_size=40))
def test_uuid_in_another_spelling_is_none(text: str) -> None:
    number = ids.uuid_int(text)
    assert number is None or ids.uuid_text(number) == text


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**73 - 1))
def test_message_ids_are_uuid7_and_leave_room_to_count(millis: int, bits: int) -> None:
    number = ids.uuid7(millis, bits)
    made = uuid.UUID(int=number)
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert number >> 80 == millis
    assert uuid.UUID(int=number + 100_000).variant == uuid.RFC_4122
    assert ids.looks_minted(ids.uuid_text(number))


@given(st.integers(0, 2**48 - 2), st.integers(0, 2**73 - 1), st.integers(0, 2**73 - 1))
def test_later_ids_sort_later(millis: int, one: int, other: int) -> None:
    assert ids.uuid_text(ids.uuid7(millis, one)) < ids.uuid_text(ids.uuid7(millis + 1, other))


@given(number=st.integers(1, 2**40), lane=st.integers(0, 2**30), lo=st.integers(0, 2**20), size=st.integers(0, 3000))
@example(number=1, lane=1, lo=0, size=2600)
@example(number=1, lane=1, lo=1295, size=3)
def test_delivery_ids_are_those_written_one_by_one(number: int, lane: int, lo: int, size: int) -> None:
    found = ids.delivery_ids(number, 7, lane, lo, lo + size)
    assert found == [ids.delivery_id(number, 7, lane, seq) for seq in range(lo, lo + size)]


@pytest.mark.parametrize("first", [0, (1 << 48) - 2, (1 << 128) - 3, 0x01A1E1AA47517F1A9A4E4FFCA7A852AD])
def test_uuids_that_count_up_are_those_written_one_by_one(first: int) -> None:
    assert ids.uuid_texts(first, 3) == [ids.uuid_text(first + n) for n in range(3)]
