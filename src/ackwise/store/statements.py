"""SQL lives in .sql files beside the code. `-- name: verb: promise` starts a statement; values are `:name`."""

from __future__ import annotations

import re
from importlib import resources

_HEAD = re.compile(r"^-- name: (\w+): .+$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


def with_lists(statements: dict[str, str], how: str) -> dict[str, str]:
    """`IN (:ids)` as a database reads it: `ids` is the text of a JSON array of numbers."""
    return {name: text.replace("IN (:ids)", how) for name, text in statements.items()}


def load(*places: tuple[str, str]) -> dict[str, str]:
    """Statements of the named (package, file) pairs; a later file overrides an earlier one."""
    found: dict[str, str] = {}
    for package, file in places:
        text = resources.files(package).joinpath(file).read_text("utf-8")
        parts = _HEAD.split(text)
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            found[name] = body.strip().rstrip(";")
    return found


def shared() -> list[tuple[str, str]]:
    """The files that both databases read."""
    nouns = ("catalog", "messages", "cursors", "spans", "leases", "dead", "ledger", "purge", "counts", "graph")
    return [("ackwise.store.tables", f"{noun}.sql") for noun in nouns]


def for_psycopg(statement: str) -> str:
    """The same statement with psycopg's parameter style."""
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))
