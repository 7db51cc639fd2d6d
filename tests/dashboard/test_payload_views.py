"""Payloads as text: previews and views that do not grow with the payload."""

from __future__ import annotations

import time

import pytest

from ackwise.core.messages import JSON
from ackwise.dashboard.payload_views import (
    DEEPEST_INDENTED,
    LARGEST_INDENTED,
    LARGEST_VIEW,
    LONGEST_PREVIEW,
    LONGEST_SHOWN,
    preview,
    view,
)


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b'{"a": 1}', '{"a": 1}'),
        (b"", ""),
        (b"one\n  two", "one two"),
        (b"\x00\x1b[31m", "␀␛[31m"),
        (b"\xff\xfe", "ff fe"),
        (b"\xff" * 30, "ff " * 23 + "ff…"),
        (b"x" * LONGEST_PREVIEW, "x" * LONGEST_PREVIEW),
        (b"x" * (LONGEST_PREVIEW + 1), "x" * LONGEST_PREVIEW + "…"),
        (("é" * (1 << 20)).encode(), "é" * LONGEST_PREVIEW + "…"),
    ],
    ids=["json", "empty", "lines", "controls", "bytes", "many-bytes", "whole", "cut", "large"],
)
def test_preview_of_payload_is_one_short_line(payload: bytes, shown: str) -> None:
    assert preview(payload) == shown


def test_cut_character_at_preview_end_is_still_text() -> None:
    assert preview(b"x" + "€".encode() * 1000).startswith("x€€")


def test_small_json_is_indented_and_keeps_its_numbers() -> None:
    shown = view(b'{"a":[1,2.50,123456789012345678901234567890],"b":"]["}', JSON)
    assert (shown.kind, shown.indented, shown.cut) == ("JSON", True, False)
    assert "\n" in shown.text
    assert "2.50" in shown.text
    assert "123456789012345678901234567890" in shown.text


@pytest.mark.parametrize(
    "payload",
    [
        b"[" * (DEEPEST_INDENTED + 1) + b"]" * (DEEPEST_INDENTED + 1),
        b"[" * 16_000 + b"]" * 16_000,
        b"[" + b"1," * (LARGEST_INDENTED // 2) + b"1]",
        b"[" * 30 + b"[" + b"1," * 8000 + b"1]" + b"]" * 30,
        b'{"a": ',
        b"not json",
    ],
    ids=["deep", "very-deep", "large", "wide-and-deep", "broken", "text"],
)
def test_json_that_is_large_deep_or_broken_stays_raw(payload: bytes) -> None:
    shown = view(payload, JSON)
    assert (shown.indented, shown.text) == (False, payload.decode()[:LONGEST_SHOWN])


def test_indented_json_is_never_larger_than_its_bound() -> None:
    for depth in (1, 5, DEEPEST_INDENTED):
        for width in (10, 1000, 5000, 15_000):
            payload = b"[" * depth + b",".join([b"1"] * width) + b"]" * depth
            assert len(view(payload, JSON).text) <= LARGEST_VIEW


def test_brackets_inside_of_strings_are_not_depth() -> None:
    assert view(b'["' + b"[" * 1000 + b'"]', JSON).indented


def test_string_without_an_end_takes_linear_time() -> None:
    payload = b'"' + b'\\"' * (LARGEST_INDENTED // 2 - 1)
    began = time.process_time()
    assert view(payload, JSON).text
    assert time.process_time() - began < 0.5, "a quadratic search takes seconds"


def test_payload_beyond_the_bound_is_cut_and_says_so() -> None:
    shown = view(b"x" * (LONGEST_SHOWN + 1), "text/plain")
    assert (shown.kind, len(shown.text), shown.cut, shown.size) == ("text", LONGEST_SHOWN, True, LONGEST_SHOWN + 1)


def test_bytes_are_shown_as_hex() -> None:
    assert view(b"\xff\x00", "image/png").text == "ff 00"
