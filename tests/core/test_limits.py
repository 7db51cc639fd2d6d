"""What callers may hand in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core import limits
from ackwise.core.errors import BadInput

NAN, INF, HUGE = float("nan"), float("inf"), 10**400
BAD_TEXT = [None, 5, b"x", ["x"], "", "a\0b", "\ud800"]


@pytest.mark.parametrize("value", [*BAD_TEXT, "x" * 256])
def test_bad_names(value: object) -> None:
    with pytest.raises(BadInput, match="queue"):
        limits.name(value, "queue")


@pytest.mark.parametrize("value", ["x", "x" * 255, "ünï/cødé 🐇", "a.b.c", " ", "\n"])
def test_good_names(value: str) -> None:
    assert limits.name(value) == value


@pytest.mark.parametrize("value", [*BAD_TEXT, "x" * 513])
def test_bad_transaction_ids(value: object) -> None:
    with pytest.raises(BadInput, match="transaction_id"):
        limits.transaction_id(value)


def test_a_long_transaction_id() -> None:
    assert limits.transaction_id("x" * 512) == "x" * 512


def test_a_tag_may_be_empty() -> None:
    assert limits.tag("", "task") == ""
    assert limits.tag("mail", "task") == "mail"
    for value in (None, 0, "a\0", "x" * 256):
        with pytest.raises(BadInput):
            limits.tag(value, "task")


@given(st.text(st.characters()), st.integers(1, 20))
def test_free_text_is_cut_and_made_storable(value: str, longest: int) -> None:
    kept = limits.text(value, "error", longest)
    assert len(kept) <= longest
    assert "\0" not in kept
    kept.encode("utf-8")


def test_free_text_must_be_text() -> None:
    with pytest.raises(BadInput, match="error must be a string, not int"):
        limits.text(5, "error", 10)


@pytest.mark.parametrize("value", [NAN, INF, -INF, -1, -0.001, HUGE, -HUGE, True, False, "5", None, 10**10])
def test_bad_durations(value: object) -> None:
    with pytest.raises(BadInput, match="delay"):
        limits.micros(value, "delay")


@pytest.mark.parametrize(
    ("value", "micros"),
    [(0, 0), (1, 1_000_000), (0.5, 500_000), (timedelta(minutes=1), 60_000_000), (1e-6, 1), (1e-9, 0)],
)
def test_good_durations(value: object, micros: int) -> None:
    assert limits.micros(value, "delay") == micros


@pytest.mark.parametrize("value", [0, -1, 24 * 3600 + 0.001, timedelta(days=1, seconds=1), NAN, INF, HUGE, True, "30"])
def test_bad_lease_times(value: object) -> None:
    with pytest.raises(BadInput, match="lease"):
        limits.lease_micros(value)


def test_good_lease_times() -> None:
    assert limits.lease_micros(24 * 3600) == 24 * 3600 * 1_000_000
    assert limits.lease_micros(timedelta(milliseconds=1)) == 1000
    assert limits.lease_of(1000) == 1000


@pytest.mark.parametrize("value", [0, 999, -1, 24 * 3600 * 1_000_000 + 1, NAN, 1e6, HUGE, True, "30"])
def test_bad_lease_times_in_microseconds(value: object) -> None:
    with pytest.raises(BadInput, match="lease"):
        limits.lease_of(value)


@pytest.mark.parametrize("value", [0, 11, -1, HUGE, NAN, INF, 1.0, True, "5", None])
def test_bad_counts(value: object) -> None:
    with pytest.raises(BadInput, match="max"):
        limits.count(value, "max", most=10)


@given(st.integers())
def test_counts_in_their_range_and_no_others(value: int) -> None:
    if 3 <= value <= 9:
        assert limits.count(value, "n", least=3, most=9) == value
    else:
        with pytest.raises(BadInput):
            limits.count(value, "n", least=3, most=9)


@pytest.mark.parametrize("value", ["middle", "", -1, limits.LAST_INSTANT + 1, HUGE, NAN, 1.5, True, None])
def test_bad_starts(value: object) -> None:
    with pytest.raises(BadInput, match="start"):
        limits.start(value)


def test_good_starts() -> None:
    assert [limits.start(s) for s in ("all", "new", 0, limits.LAST_INSTANT)] == ["all", "new", 0, limits.LAST_INSTANT]


def test_one_of_names_the_choices() -> None:
    with pytest.raises(BadInput, match="order must be one of strict, relaxed, not 'x'"):
        limits.one_of("x", "order", ("strict", "relaxed"))
    with pytest.raises(BadInput):
        limits.one_of(["strict"], "order", ("strict",))
    assert limits.one_of("strict", "order", ("strict",)) == "strict"


checks: list[Callable[[object], object]] = [
    limits.name, limits.transaction_id, limits.lease_micros, limits.lease_of, limits.start,
    lambda v: limits.micros(v, "x"), lambda v: limits.count(v, "x"), lambda v: limits.tag(v, "x"),
]  # fmt: skip


@given(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.integers()),
    st.sampled_from(checks),
)
def test_whatever_comes_in_the_answer_is_a_value_or_bad_input(value: object, check: Callable[[object], object]) -> None:
    with contextlib.suppress(BadInput):
        assert isinstance(check(value), str | int)
