"""The latency sketch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ackwise.core import latency

samples = st.lists(st.integers(1, 10**11), min_size=1, max_size=200)


def sketch_of(values: list[int]) -> dict[int, int]:
    sketch: dict[int, int] = {}
    for value in values:
        number = latency.bucket(value)
        sketch[number] = sketch.get(number, 0) + 1
    return sketch


@given(st.integers(1, 10**12))
def test_buckets_bound_is_at_most_a_quarter_too_high(micros: int) -> None:
    bound = latency.bound(latency.bucket(micros))
    assert micros - 1 <= bound <= micros * 1.25 + 1


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_longer_never_falls_into_a_lower_bucket(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert latency.bucket(low) <= latency.bucket(high)


def test_zero_and_negative_values_fall_into_first_bucket() -> None:
    assert [latency.bucket(n) for n in (-5, 0, 1)] == [0, 0, 0]


@given(samples, samples)
def test_merging_is_the_same_as_counting_together(one: list[int], other: list[int]) -> None:
    assert latency.merged(sketch_of(one), sketch_of(other)) == sketch_of(one + other)
