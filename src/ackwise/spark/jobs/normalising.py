"""Error messages without what differs from case to case, so that the same error is counted once."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

LONGEST = 300

_QUOTED = r"""(["'`])(?:(?!\1).)*\1"""
_PLACEHOLDERS: tuple[tuple[str, str], ...] = (
    (r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?( ?(Z|[+-]\d\d:?\d\d)\b)?)?", "<time>"),
    (r"\b\d\d:\d\d:\d\d([.,]\d+)?", "<time>"),
    (r"\b0[xX][0-9a-fA-F]+\b", "<hex>"),
    (r"\b(?=[0-9a-fA-F]*\d)(?=\d*[a-fA-F])[0-9a-fA-F]{8,}\b", "<hex>"),
    (r"((?<![\w>)\]-])[-+])?\d+([.,]\d+)*([eE][-+]?\d+\b)?", "<n>"),
    (r"\s+", " "),
)
"""In this order: what looks like several is the first."""


def normalised(error: Column) -> Column:
    """One spelling for "order 17 not found" and "order 99 not found": "order <n> not found"."""
    text = F.trim(_telling_line(F.coalesce(error, F.lit(""))))
    text = F.regexp_replace(text, r"[\w.%+-]+@[\w-]+(\.[\w-]+)+", "<email>")
    text = F.regexp_replace(text, r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "<uuid>")
    # A message that is nothing but a quoted word, such as a KeyError's, keeps it: there is nothing else to tell it by.
    quoted = F.regexp_replace(text, rf"(?<!\w){_QUOTED}(?!\w)", "<text>")
    text = F.when(text.rlike(f"^{_QUOTED}$"), text).otherwise(quoted)
    for pattern, placeholder in _PLACEHOLDERS:
        text = F.regexp_replace(text, pattern, placeholder)
    return F.substring(text, 1, LONGEST)


def _telling_line(text: Column) -> Column:
    """The line that says what went wrong: the last of a Python traceback, the first of anything else."""
    lines = F.filter(F.split(text, r"\R"), lambda line: F.trim(line) != "")
    last = text.startswith("Traceback (most recent call last)")
    return F.coalesce(F.get(lines, F.when(last, F.size(lines) - 1).otherwise(0)), F.lit(""))
