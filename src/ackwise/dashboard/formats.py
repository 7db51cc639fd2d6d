"""Formats of the templates: grouped counts, relative times, durations and sizes."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from ackwise.core.validation import LAST_INSTANT, MICROS
from ackwise.wire import timestamps

NOTHING = "-"
"""Shown for a value that does not exist."""
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_DIRECTIONS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F), "\ufffd")
"""Characters that change the direction of the text around them."""
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SHORT = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


def count(number: int | None) -> str:
    """A number with its digits in groups: 1,234,567."""
    return NOTHING if number is None else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """A count with its noun: 1 message, 1,234 messages."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def short(number: float | None) -> Markup | str:
    """A number with at most three digits, and the exact one on hover: 1.23M."""
    if number is None:
        return NOTHING
    for size, letter in _SHORT:
        if abs(number) >= size * 10:
            return Markup('<span title="{}">{}{}</span>').format(f"{number:,}", f"{number / size:.3g}", letter)
    return f"{number:,}"


def rate(number: float | None) -> str:
    """A number per second: 0.25, 12.5, 1,234."""
    if number is None:
        return NOTHING
    return f"{number:,.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2g}"


def duration(seconds: float | None) -> str:
    """A duration in its two largest units: 2 d 3 h, 5 min, 12 s, 40 ms."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return "0 s" if seconds <= 0 else f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    parts = []
    for unit, letter in (*_UNITS, (1, "s")):
        if whole >= unit:
            parts.append(f"{whole // unit} {letter}")
            whole %= unit
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def size(number: int | None) -> str:
    """A number of bytes: 12.3 MiB."""
    if number is None:
        return NOTHING
    return next((f"{number / unit:.3g} {name}" for unit, name in _SIZES if number >= unit), f"{number:,} B")


def exact(instant: int | None) -> str:
    """An instant in UTC: 2030-01-31 12:00:00.123 UTC."""
    if instant is None:
        return NOTHING
    return f"{timestamps.text(min(instant, LAST_INSTANT))[:23].replace('T', ' ')} UTC"


@pass_context
def ago(context: Context, instant: int | None) -> Markup | str:
    """Distance from now, such as `5 min ago` or `in 2 h`, with the exact time on hover."""
    if instant is None:
        return NOTHING
    distance = (context["now"] - instant) / MICROS
    text = "now" if abs(distance) < 1 else f"{_coarse(distance)} ago" if distance > 0 else f"in {_coarse(-distance)}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(timestamps.text(instant), exact(instant), text)


@pass_context
def age(context: Context, instant: int | None) -> Markup | str:
    """Age of an instant as a duration, with the exact time on hover."""
    if instant is None:
        return NOTHING
    text = duration(max(0.0, (context["now"] - instant) // MICROS))
    return Markup('<time datetime="{}" title="{}">{}</time>').format(timestamps.text(instant), exact(instant), text)


def _coarse(seconds: float) -> str:
    """A duration in one unit."""
    for unit, letter in _UNITS:
        if seconds >= unit:
            return f"{seconds / unit:.0f} {letter}"
    return f"{seconds:.0f} s"


def clip(text: str, longest: int = 120) -> str:
    """The beginning of a text. The macro `long_text` also shows the rest."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def unformatted(text: str) -> str:
    """A sentence with names in it, without the characters that change the order of the text around them."""
    return text.translate(_DIRECTIONS)


def add_formats(environment: Environment) -> None:
    """Add the filters to an environment of templates."""
    formats: list[Any] = [count, counted, short, rate, duration, size, exact, ago, age, clip, unformatted]
    environment.filters.update({format.__name__: format for format in formats})
