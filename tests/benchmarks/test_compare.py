"""Comparing two checkouts: what counts as better, and the median of pairs."""

from __future__ import annotations

import pytest

from benchmarks.compare import Figures, figures, gains, medians

PUSH = ("embedded", "push", "rate")
WAIT = ("server", "push p50", "latency")


def test_figures_leave_out_rows_without_a_value() -> None:
    rows: list[dict[str, object]] = [
        {"table": "embedded", "row": "push", "metric": "rate", "value": 5, "unit": "msg/s"},
        {"table": "server", "row": "other", "metric": "rate", "value": None, "unit": "msg/s"},
    ]
    assert figures(rows) == {PUSH: (5.0, "msg/s")}


def test_gain_of_a_shorter_time_is_above_one() -> None:
    before: Figures = {PUSH: (100.0, "msg/s"), WAIT: (2.0, "ms")}
    after: Figures = {PUSH: (50.0, "msg/s"), WAIT: (1.0, "ms")}
    assert gains(before, after) == {PUSH: 0.5, WAIT: 2.0}


def test_medians_are_listed_worst_first() -> None:
    pairs = [{PUSH: 1.0, WAIT: 0.9}, {PUSH: 3.0, WAIT: 0.8}, {PUSH: 1.2, WAIT: 2.0}]
    listed = medians(pairs)
    assert [key for key, _, _ in listed] == [WAIT, PUSH]
    assert [median for _, median, _ in listed] == pytest.approx([0.9, 1.2])
