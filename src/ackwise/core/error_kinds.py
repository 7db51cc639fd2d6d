"""Kind of an error: its text with the variable parts replaced by placeholders.

"order 17 not found" is of the kind "order <n> not found". Each dead letter stores the kind of its error. The Spark job
`dead_letter_report` builds the same text from the same patterns, so they must mean the same in Java.
"""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST_KIND = 300
"""Characters of a kind."""
TRACEBACK = "Traceback (most recent call last)"
"""A text that begins so is a Python traceback: the error is in its last line, not in its first."""

QUOTED = r"""(["'`])(?:(?!\1).)*\1"""
PLACEHOLDERS: tuple[tuple[str, str], ...] = (
    (r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?( ?(Z|[+-]\d\d:?\d\d)\b)?)?", "<time>"),
    (r"\b\d\d:\d\d:\d\d([.,]\d+)?", "<time>"),
    (r"\b0[xX][0-9a-fA-F]+\b", "<hex>"),
    (r"\b(?=[0-9a-fA-F]*\d)(?=\d*[a-fA-F])[0-9a-fA-F]{8,}\b", "<hex>"),
    (r"((?<![\w>)\]-])[-+])?\d+([.,]\d+)*([eE][-+]?\d+\b)?", "<n>"),
    (r"\s+", " "),
)
"""Patterns in order of precedence, each with its placeholder."""

EMAIL = r"(?<![\w.%+-])[\w.%+-]+@[\w-]+(\.[\w-]+)+"
"""The look-behind keeps the search linear: it starts once in each word, not at each character."""
UUID = r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
_LINE_BREAK = re.compile("\r\n|[\n\x0b\x0c\r\x85\u2028\u2029]")
_EMAIL, _UUID = re.compile(EMAIL, re.ASCII), re.compile(UUID, re.ASCII)
_TEXT = re.compile(rf"(?<!\w){QUOTED}(?!\w)", re.ASCII)
_ONLY_TEXT = re.compile(f"^{QUOTED}$", re.ASCII)
_OTHERS = [(re.compile(pattern, re.ASCII), placeholder) for pattern, placeholder in PLACEHOLDERS]


@lru_cache(maxsize=256)
def error_kind(error: str) -> str:
    """The kind of an error, up to `LONGEST_KIND` characters. Empty for a text without a line."""
    lines = [line for line in _LINE_BREAK.split(error) if line.strip(" ")]
    text = (lines[-1 if error.startswith(TRACEBACK) else 0] if lines else "").strip(" ")
    text = _UUID.sub("<uuid>", _EMAIL.sub("<email>", text))
    if not _ONLY_TEXT.search(text):
        text = _TEXT.sub("<text>", text)
    for pattern, placeholder in _OTHERS:
        text = pattern.sub(placeholder, text)
    return text[:LONGEST_KIND]
