"""Format of numbers in reports, charts and pages."""

from __future__ import annotations


def number(value: float) -> str:
    """`1,234`, `0.25`, `12.5`."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"
