"""Loads named statements from `.sql` files."""

from __future__ import annotations

import re
from importlib import resources

_HEAD = re.compile(r"^-- name: (\w+): .+$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


def with_lists(statements: dict[str, str], condition: str) -> dict[str, str]:
    """Replace `IN (:ids)` by the condition of one database. `ids` is the text of a JSON array of numbers."""
    return {name: text.replace("IN (:ids)", condition) for name, text in statements.items()}


def load(*files: tuple[str, str]) -> dict[str, str]:
    """Load the statements of (package, file) pairs. A statement of a later file overrides an earlier one."""
    statements: dict[str, str] = {}
    for package, file in files:
        text = resources.files(package).joinpath(file).read_text("utf-8")
        parts = _HEAD.split(text)
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            statements[name] = body.strip().rstrip(";")
    return statements


def shared() -> list[tuple[str, str]]:
    """The files that both databases load."""
    nouns = (
        "catalog",
        "messages",
        "cursors",
        "spans",
        "leases",
        "dead",
        "hooks",
        "ledger",
        "purge",
        "counts",
        "traces",
        "maintenance",
    )
    return [("ackwise.store.tables", f"{noun}.sql") for noun in nouns]


def for_psycopg(statement: str) -> str:
    """The statement with psycopg's parameter style."""
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))
