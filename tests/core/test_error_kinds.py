"""Kinds of errors."""

from __future__ import annotations

import time

import pytest

from ackwise.core.error_kinds import LONGEST_KIND, error_kind
from tests.core.kinds_of_errors import TABLE


def test_kind_leaves_out_the_variable_parts() -> None:
    assert {error: error_kind(error or "") for error in TABLE} == TABLE


@pytest.mark.parametrize("unit", ["a", "a@", "a.", "1", "1,", "'a ", '"a', "f", "0x", "-", " ", "a\n", "a'b"])
def test_kind_of_a_hostile_text_takes_linear_time(unit: str) -> None:
    """In quadratic time each of these texts takes minutes."""
    began = time.thread_time()
    assert len(error_kind(unit * (400_000 // len(unit)))) <= LONGEST_KIND
    assert time.thread_time() - began < 20
