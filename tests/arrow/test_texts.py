"""Ids made in bulk are spelled as they are one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ackwise.arrow import text_columns
from ackwise.core import ids

near_powers = st.builds(
    lambda power, off: max(0, 36**power + off), st.integers(0, 7), st.integers(-40, 40)
) | st.integers(0, (1 << 40) - 1000)


@given(
    no=st.integers(1, 2**63 - 1),
    tag=st.integers(0, 2**32 - 1),
    lane=st.integers(0, (1 << 22) - 1),
    lo=near_powers,
    count=st.integers(0, 100),
)
@example(no=1, tag=0, lane=0, lo=0, count=1400)
@example(no=1, tag=0, lane=0, lo=36**4 - 1, count=2)
def test_delivery_ids_across_powers_of_36(no: int, tag: int, lane: int, lo: int, count: int) -> None:
    made = text_columns.delivery_ids(no, tag, lane, np.arange(lo, lo + count))
    made.validate(full=True)
    assert made.to_pylist() == ids.delivery_ids(no, tag, lane, lo, lo + count)


@given(st.lists(near_powers, max_size=30, unique=True).map(sorted))
def test_delivery_ids_with_gaps(seqs: list[int]) -> None:
    made = text_columns.delivery_ids(5, 6, 7, np.array(seqs, np.int64))
    assert made.type == pa.string()
    assert made.to_pylist() == [ids.delivery_id(5, 6, 7, seq) for seq in seqs]


@given(
    st.integers(0, 2**128 - 200) | st.integers(-100, 100).map(lambda off: (1 << 64) + off),
    st.integers(0, 100),
)
def test_ids_that_count_up(first: int, count: int) -> None:
    made = text_columns.uuids(text_columns.counted_ids(first, count))
    made.validate(full=True)
    assert made.to_pylist() == ids.uuid_texts(first, count)


@given(st.lists(st.integers(0, 2**128 - 1), max_size=20))
def test_minted_at_of_packed_ids_equals_each_id(numbers: list[int]) -> None:
    packed = np.frombuffer(b"".join(one.to_bytes(16, "big") for one in numbers), np.uint8).reshape(-1, 16)
    assert text_columns.minted_at(packed).tolist() == [ids.minted_at(one) for one in numbers]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_join_of_no_parts_is_an_empty_column(kind: pa.DataType) -> None:
    assert text_columns.joined([], kind).equals(pa.array([], kind))
