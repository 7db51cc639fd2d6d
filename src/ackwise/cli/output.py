"""Output of commands: tables that fit the terminal, JSON, and progress on stderr."""

from __future__ import annotations

import base64
import os
import shutil
import sys
import textwrap
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from ackwise.core.messages import QUEUE_MODE
from ackwise.core.messages import json_value as payload_shown
from ackwise.spark.reports.columns import NOTHING, Column, cell

DEFAULT_GROUP = "(default)"
"""Name of the default group in tables and arguments."""
UNNAMED = "(unnamed)"
"""Name of consumers without an owner in tables."""
_GAP = "  "
_FOLDED = 14
"""Least width of a folded column of text."""
_NARROWEST = 8
_RIGHT = frozenset(("number", "share", "duration"))

Row = Mapping[str, Any]


def fields_of(row: msgspec.Struct) -> dict[str, Any]:
    """Fields of a row for JSON, with a readable payload, and with the lag of a group."""
    fields = msgspec.structs.asdict(row)
    if "payload" in fields:
        fields["payload"] = payload_shown(fields["payload"], fields["content_type"])
    if hasattr(row, "lag"):
        fields["lag"] = row.lag
    if "groups" in fields:
        fields["groups"] = [fields_of(group) for group in fields["groups"]]
    return fields


def show_rows(
    rows: Sequence[Row], columns: Sequence[Column], as_json: bool, nothing: str, *, optional: Sequence[str] = ()
) -> None:
    """Print all fields of each row as JSON, or `columns` as a table, or `nothing` if there are no rows.

    If the table is wider than the terminal, it leaves out `optional` columns one by one, in their order.
    """
    if as_json:
        show_json(rows)
    elif rows:
        print(table(rows, columns, width(), optional))
    else:
        print(nothing)


def show_fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair per line. Long values continue below their first line."""
    lines = [(name, _text(value)) for name, value in pairs]
    indent = max((len(name) for name, _ in lines), default=0) + len(_GAP)
    for name, value in lines:
        for number, part in enumerate(_folded(value, max(_NARROWEST, width() - indent))):
            print(f"{name if not number else '':{indent}}{part}".rstrip())


def show_json(value: object) -> None:
    """Print a value as indented JSON."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=_encoded), indent=2)
    sys.stdout.write(text.decode() + "\n")


def json_line(value: object) -> str:
    """A value as one line of JSON."""
    return msgspec.json.encode(value, enc_hook=_encoded).decode() + "\n"


def width() -> int:
    """Columns of the terminal, or of COLUMNS. A file or pipe gets full lines."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 100_000


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 lease`, `2 leases`."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def group_shown(name: str) -> str:
    return DEFAULT_GROUP if name == QUEUE_MODE else name


def group_from(name: str | None) -> str | None:
    """The stored name of a group that the user wrote."""
    return QUEUE_MODE if name == DEFAULT_GROUP else name


# tables


def table(rows: Sequence[Row], columns: Sequence[Column], room: int, optional: Sequence[str] = ()) -> str:
    """A table of at most `room` columns of text. It leaves out `optional` columns or folds cells. It cuts no cell."""
    cells = [{column.key: _shown(row.get(column.key), column) for column in columns} for row in rows]
    kept, widths = _fitting(columns, cells, room, optional)
    lines = [_line([column.label for column in kept], kept, widths)]
    lines += [_line([row[column.key] for column in kept], kept, widths) for row in cells]
    left_out = [column.label for column in columns if column not in kept]
    if left_out:
        note = f"({len(left_out)} more with --json or a wider terminal: {', '.join(left_out)})"
        lines += textwrap.wrap(note, max(room, _NARROWEST))
    return "\n".join(lines)


def _fitting(
    columns: Sequence[Column], cells: Sequence[dict[str, str]], room: int, optional: Sequence[str]
) -> tuple[list[Column], list[int]]:
    """Columns that fit, and their widths."""
    kept = list(columns)
    widths = _widths(kept, cells, room)
    for hidden in optional:
        if widths is not None:
            break
        kept = [column for column in kept if column.key != hidden]
        widths = _widths(kept, cells, room)
    if widths is None:
        widths = _squeezed([_natural(column, cells) for column in kept], [_NARROWEST] * len(kept), room)
    return kept, widths


def _widths(columns: Sequence[Column], cells: Sequence[dict[str, str]], room: int) -> list[int] | None:
    """Widths at which the columns fit, with text folded if needed. None if they do not fit."""
    natural = [_natural(column, cells) for column in columns]
    foldable = [column.kind in ("text", "error", "any") for column in columns]
    least = [
        min(size, max(_FOLDED, _cells(column.label))) if folds else size
        for size, folds, column in zip(natural, foldable, columns, strict=True)
    ]
    if sum(least) + len(_GAP) * (len(columns) - 1) > room:
        return None
    return _squeezed(natural, least, room)


def _squeezed(natural: list[int], least: list[int], room: int) -> list[int]:
    """Widths that fit. Shrinks the widest column first, but no column below its least width."""
    widths = list(natural)
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - room
    while excess > 0:
        shrinkable = [at for at in range(len(widths)) if widths[at] > least[at]]
        if not shrinkable:
            break
        widest = max(shrinkable, key=lambda at: widths[at])
        widths[widest] -= 1
        excess -= 1
    return widths


def _natural(column: Column, cells: Sequence[dict[str, str]]) -> int:
    return max([_cells(column.label), *(_cells(row[column.key]) for row in cells)])


def _line(texts: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    """A row of the table. A cell that is too wide continues in the next lines."""
    parts = [_folded(text, size) for text, size in zip(texts, widths, strict=True)]
    lines = []
    for at in range(max(map(len, parts))):
        line = _GAP.join(
            _padded(part[at] if at < len(part) else "", size, right=column.kind in _RIGHT)
            for part, size, column in zip(parts, widths, columns, strict=True)
        )
        lines.append(line.rstrip())
    return "\n".join(lines)


def _folded(text: str, size: int) -> list[str]:
    """The text in lines of at most `size` columns, broken at spaces where possible."""
    lines = []
    for word_line in textwrap.wrap(text, size, drop_whitespace=True, break_on_hyphens=False) or [""]:
        line = ""
        for character in word_line:
            if _cells(line) + _cells(character) > size:
                lines.append(line)
                line = ""
            line += character
        lines.append(line)
    return lines


def _padded(text: str, size: int, *, right: bool) -> str:
    space = " " * (size - _cells(text))
    return space + text if right else text + space


def _cells(text: str) -> int:
    """Columns that a terminal uses for a text."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def _shown(value: object, column: Column) -> str:
    if column.key == "group" and isinstance(value, str):
        return group_shown(value)
    if column.key == "consumer" and value == "":
        return UNNAMED
    if isinstance(value, bool):
        return "yes" if value else "no"
    return plain_text(cell(value, column.kind))


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NOTHING if value is None else plain_text(str(value))


def plain_text(text: str) -> str:
    """The text with its control characters escaped, so that stored data cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _encoded(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


# progress


class Progress:
    """Counter on stderr, at most ten times per second. Shown only on a terminal."""

    def __init__(self, label: str) -> None:
        self._label, self._shown_at = label, 0.0
        self._shown = sys.stderr.isatty()

    def __call__(self, count: int) -> None:
        if self._shown and time.monotonic() - self._shown_at >= 0.1:
            self._shown_at = time.monotonic()
            print(f"\r{self._label} {count:,}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown and self._shown_at:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
