"""What callers may hand in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core import validation
from ackwise.core.errors import BadInput

NAN, INF, HUGE = float("nan"), float("inf"), 10**400
BAD_TEXT = [None, 5, b"x", ["x"], "", "a\0b", "\ud800"]


@pytest.mark.parametrize("value", [*BAD_TEXT, "x" * 256])
def test_invalid_name_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match="queue"):
        validation.name(value, "queue")


@pytest.mark.parametrize("value", ["x", "x" * 255, "ünï/cødé 🐇", "a.b.c", " ", "\n"])
def test_valid_name_is_kept(value: str) -> None:
    assert validation.name(value) == value


@pytest.mark.parametrize("value", [*BAD_TEXT, "x" * 513])
def test_invalid_transaction_id_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match="transaction_id"):
        validation.transaction_id(value)


def test_long_transaction_id() -> None:
    assert validation.transaction_id("x" * 512) == "x" * 512


def test_tag_may_be_empty() -> None:
    assert validation.tag("", "task") == ""
    assert validation.tag("mail", "task") == "mail"
    for value in (None, 0, "a\0", "x" * 256):
        with pytest.raises(BadInput):
            validation.tag(value, "task")


@given(st.text(st.characters()), st.integers(1, 20))
def test_free_text_is_cut_and_made_storable(value: str, longest: int) -> None:
    kept = validation.text(value, "error", longest)
    assert len(kept) <= longest
    assert "\0" not in kept
    kept.encode("utf-8")


def test_free_text_must_be_text() -> None:
    with pytest.raises(BadInput, match="error must be a string, not int"):
        validation.text(5, "error", 10)


@pytest.mark.parametrize("value", [NAN, INF, -INF, -1, -0.001, HUGE, -HUGE, True, False, "5", None, 10**10])
def test_invalid_duration_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match="delay"):
        validation.micros(value, "delay")


@pytest.mark.parametrize(
    ("value", "micros"),
    [(0, 0), (1, 1_000_000), (0.5, 500_000), (timedelta(minutes=1), 60_000_000), (1e-6, 1), (1e-9, 0)],
)
def test_valid_duration_is_microseconds(value: object, micros: int) -> None:
    assert validation.micros(value, "delay") == micros


@pytest.mark.parametrize("value", [0, -1, 24 * 3600 + 0.001, timedelta(days=1, seconds=1), NAN, INF, HUGE, True, "30"])
def test_invalid_lease_time_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match="lease"):
        validation.lease_micros(value)


def test_valid_lease_time_is_microseconds() -> None:
    assert validation.lease_micros(24 * 3600) == 24 * 3600 * 1_000_000
    assert validation.lease_micros(timedelta(milliseconds=1)) == 1000
    assert validation.lease_of(1000) == 1000


@pytest.mark.parametrize("value", [0, 999, -1, 24 * 3600 * 1_000_000 + 1, NAN, 1e6, HUGE, True, "30"])
def test_invalid_lease_time_in_microseconds_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match="lease"):
        validation.lease_of(value)


@pytest.mark.parametrize("value", [0, 11, -1, HUGE, NAN, INF, 1.0, True, "5", None])
def test_invalid_count_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match="max"):
        validation.count(value, "max", most=10)


@given(st.integers())
def test_counts_in_their_range_and_no_others(value: int) -> None:
    if 3 <= value <= 9:
        assert validation.count(value, "n", least=3, most=9) == value
    else:
        with pytest.raises(BadInput):
            validation.count(value, "n", least=3, most=9)


@pytest.mark.parametrize("value", ["middle", "", -1, validation.LAST_INSTANT + 1, HUGE, NAN, 1.5, True, None])
def test_invalid_start_is_refused(value: object) -> None:
    with pytest.raises(BadInput, match="start"):
        validation.start(value)


def test_valid_start_is_kept() -> None:
    assert [validation.start(s) for s in ("all", "new", 0, validation.LAST_INSTANT)] == [
        "all",
        "new",
        0,
        validation.LAST_INSTANT,
    ]


def test_refusal_of_a_choice_names_the_choices() -> None:
    with pytest.raises(BadInput, match="order must be one of strict, relaxed, not 'x'"):
        validation.one_of("x", "order", ("strict", "relaxed"))
    with pytest.raises(BadInput):
        validation.one_of(["strict"], "order", ("strict",))
    assert validation.one_of("strict", "order", ("strict",)) == "strict"


checks: list[Callable[[object], object]] = [
    validation.name, validation.transaction_id, validation.lease_micros, validation.lease_of, validation.start,
    lambda v: validation.micros(v, "x"), lambda v: validation.count(v, "x"), lambda v: validation.tag(v, "x"),
]  # fmt: skip


@given(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.integers()),
    st.sampled_from(checks),
)
def test_check_of_any_value_answers_or_raises_bad_input(value: object, check: Callable[[object], object]) -> None:
    with contextlib.suppress(BadInput):
        assert isinstance(check(value), str | int)
