"""How long a failed message waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core.errors import BadInput
from ackwise.core.policy import Backoff
from ackwise.core.validation import MICROS

rolls = st.floats(0, 1, exclude_max=True)
backoffs = st.builds(
    Backoff,
    kind=st.sampled_from(["none", "fixed", "exponential", "schedule"]),
    seconds=st.floats(0, 1e6),
    factor=st.floats(1, 100),
    cap=st.floats(0, 1e8),
    delays=st.lists(st.floats(0, 1e6), min_size=1, max_size=5).map(tuple),
    jitter=st.floats(0, 1),
)


def waits(backoff: Backoff, most: int = 6) -> list[float]:
    return [backoff.delay_micros(n, 0.0) / MICROS for n in range(1, most + 1)]


def test_backoff_without_options_does_not_wait() -> None:
    assert waits(Backoff()) == [0] * 6


def test_fixed_is_always_the_same() -> None:
    assert waits(Backoff(kind="fixed", seconds=2.5)) == [2.5] * 6


def test_exponential_grows_up_to_its_cap() -> None:
    assert waits(Backoff(kind="exponential", seconds=1, factor=3, cap=20)) == [1, 3, 9, 20, 20, 20]


def test_exponential_does_not_overflow_after_many_failures() -> None:
    backoff = Backoff(kind="exponential", seconds=0.001, factor=100, cap=60)
    assert backoff.delay_micros(10**9, 0.0) == 60 * MICROS
    assert Backoff(kind="exponential", seconds=0.0).delay_micros(10**9, 0.0) == 0


def test_schedule_repeats_its_last_entry() -> None:
    assert waits(Backoff(kind="schedule", delays=(1, 5, 30))) == [1, 5, 30, 30, 30, 30]


def test_jitter_takes_away_up_to_its_share() -> None:
    backoff = Backoff(kind="fixed", seconds=10, jitter=0.5)
    assert backoff.delay_micros(1, 0.0) == 10 * MICROS
    assert backoff.delay_micros(1, 0.5) == round(7.5 * MICROS)
    assert backoff.delay_micros(1, 0.999999) >= 5 * MICROS


@given(backoffs, st.integers(1, 10**6), rolls)
def test_jitter_stays_between_its_bounds(backoff: Backoff, failures: int, roll: float) -> None:
    longest = backoff.delay_micros(failures, 0.0)
    wait = backoff.delay_micros(failures, roll)
    assert longest * (1 - backoff.jitter) - 1 <= wait <= longest
    assert wait >= 0


@given(backoffs, st.integers(1, 200))
def test_exponential_delays_never_shrink_or_exceed_cap(backoff: Backoff, failures: int) -> None:
    if backoff.kind == "exponential":
        now, later = backoff.delay_micros(failures, 0.0), backoff.delay_micros(failures + 1, 0.0)
        assert now <= later <= round(backoff.cap * MICROS)


@pytest.mark.parametrize(
    "backoff",
    [
        Backoff(kind="schedule"),
        Backoff(kind="fixed", seconds=-1),
        Backoff(kind="fixed", seconds=float("nan")),
        Backoff(kind="exponential", factor=0.5),
        Backoff(kind="exponential", factor=float("inf")),
        Backoff(kind="exponential", cap=-1),
        Backoff(kind="schedule", delays=(1.0, -1.0)),
        Backoff(jitter=1.5),
        Backoff(jitter=float("nan")),
    ],
)
def test_backoff_with_invalid_field_is_refused(backoff: Backoff) -> None:
    with pytest.raises(BadInput, match="backoff"):
        backoff.check()


@given(backoffs)
def test_backoff_with_valid_fields_is_accepted(backoff: Backoff) -> None:
    backoff.check()
