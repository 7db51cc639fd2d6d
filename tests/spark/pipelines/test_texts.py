"""Texts go into another process as Arrow has them."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.spark.pipelines.record_handler import TextColumn


@given(st.lists(st.text()), st.integers(0, 5), st.integers(0, 50))
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_text_column_equals_the_values_of_its_slice(kind: pa.DataType, texts: list[str], lo: int, size: int) -> None:
    column = pa.array(texts, kind).slice(min(lo, len(texts)), size)
    expected = [text.encode() for text in texts[lo : lo + size]]
    found = pickle.loads(pickle.dumps(TextColumn.of(column)))  # noqa: S301
    assert (len(found), list(found)) == (len(expected), expected)
    assert [found[at] for at in range(len(found))] == expected
    assert found[1:3] == expected[1:3]
