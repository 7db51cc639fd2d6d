"""Prints rows as tables or JSON on stdout."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from ackwise.core.messages import json_value as payload_shown


def show(rows: Sequence[msgspec.Struct], columns: Sequence[str], as_json: bool) -> None:
    """Print all fields of each row as JSON, or `columns` as a table."""
    if as_json:
        show_json([plain(row) for row in rows])
        return
    table = Table(*columns)
    for row in rows:
        table.add_row(*(_cell(getattr(row, column)) for column in columns))
    wide().print(table)


def wide() -> Console:
    """Console that fits a terminal's width. A file or pipe gets full lines."""
    return Console(width=None if sys.stdout.isatty() else 10_000)


def show_json(value: object) -> None:
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=_encoded), indent=2)
    sys.stdout.write(text.decode() + "\n")


def plain(row: msgspec.Struct) -> dict[str, Any]:
    """Fields of a row for JSON, with a readable payload, and with the lag of a group."""
    fields = msgspec.structs.asdict(row)
    if "payload" in fields:
        fields["payload"] = payload_shown(fields["payload"], fields["content_type"])
    if hasattr(row, "lag"):
        fields["lag"] = row.lag
    if "groups" in fields:
        fields["groups"] = [plain(group) for group in fields["groups"]]
    return fields


def _encoded(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return "" if value is None else str(value)
