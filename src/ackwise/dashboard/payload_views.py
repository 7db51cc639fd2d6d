"""Payloads as text: a preview for lists, and a page's view that indents small JSON only."""

from __future__ import annotations

import codecs
import re

import msgspec

from ackwise.core.messages import JSON

LONGEST_PREVIEW = 160
"""Characters of a preview."""
LARGEST_INDENTED = 32 << 10
"""Bytes of a JSON payload that a page indents."""
DEEPEST_INDENTED = 32
LARGEST_VIEW = 256 << 10
"""Bytes of an indented payload."""
LONGEST_SHOWN = 64 << 10
"""Bytes of a payload that a page shows. The download has the rest."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.?)*+"?', re.DOTALL)
_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
"""Control characters, with the visible Unicode characters that replace them."""


class PayloadView(msgspec.Struct, frozen=True):
    """A payload as a page shows it. `kind` is `JSON`, `text` or `binary`."""

    kind: str
    text: str
    size: int
    cut: bool
    """Whether the text is only the beginning of the payload."""
    indented: bool = False


def preview(payload: bytes) -> str:
    """The beginning of a payload on one line. Reads a bounded number of its bytes."""
    text = _text(payload[: LONGEST_PREVIEW * 4], whole=len(payload) <= LONGEST_PREVIEW * 4)
    if text is None:
        return f"{payload[:24].hex(' ')}{'…' if len(payload) > 24 else ''}"
    line = " ".join(text.split())
    shown = line[:LONGEST_PREVIEW].translate(_CONTROLS)
    return shown if len(line) <= LONGEST_PREVIEW and len(payload) <= LONGEST_PREVIEW * 4 else f"{shown}…"


def view(payload: bytes, content_type: str) -> PayloadView:
    """A payload for a page. The work does not grow with the payload."""
    size, cut = len(payload), len(payload) > LONGEST_SHOWN
    text = _text(payload[:LONGEST_SHOWN], whole=not cut)
    if text is None:
        return PayloadView("binary", payload[:1024].hex(" "), size, size > 1024)
    if content_type == JSON and (indented := _indented(payload)) is not None:
        return PayloadView("JSON", indented.translate(_CONTROLS), size, False, True)
    return PayloadView("JSON" if content_type == JSON else "text", text.translate(_CONTROLS), size, cut)


def _text(data: bytes, *, whole: bool) -> str | None:
    """Bytes as text, or None. Without `whole` the last character may be incomplete."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data, final=whole)
    except UnicodeDecodeError:
        return None


def _indented(payload: bytes) -> str | None:
    """JSON with indentation. None if it is not JSON, or if the result would be large."""
    if len(payload) > LARGEST_INDENTED:
        return None
    bare = _STRING.sub(b"", payload)
    depth = deepest = 0
    for bracket in re.findall(rb"[\[\]{}]", bare):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    lines = bare.count(b",") + 2 * bare.count(b"[") + 2 * bare.count(b"{")
    if deepest > DEEPEST_INDENTED or len(payload) + lines * (2 * deepest + 1) > LARGEST_VIEW:
        return None
    try:
        return msgspec.json.format(payload, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
