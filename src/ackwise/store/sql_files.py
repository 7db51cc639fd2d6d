"""Loads named statements from `.sql` files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from typing import TypeVar

_HEAD = re.compile(r"^-- name: (\w+): .+$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
T = TypeVar("T")


def with_lists(statements: dict[str, str], condition: str) -> dict[str, str]:
    """Replace `IN (:ids)` by the condition of one database. `ids` is the text of a JSON array of numbers."""
    return {name: text.replace("IN (:ids)", condition) for name, text in statements.items()}


File = tuple[str, str]
"""Package and name of a file."""


def load(files: Sequence[File], overrides: Sequence[File] = ()) -> dict[str, str]:
    """Load the statements of files. Only a statement of `overrides` may replace one with the same name."""
    return _unique(files) | _unique(overrides)


def _unique(files: Sequence[File]) -> dict[str, str]:
    """The statements of files. Two statements with one name are an error: one of them would never run."""
    statements: dict[str, str] = {}
    for package, file in files:
        parts = _HEAD.split(resources.files(package).joinpath(file).read_text("utf-8"))
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in statements:
                raise ValueError(f"{file} of {package} has a second statement {name!r}; rename one of the two")
            statements[name] = body.strip().rstrip(";")
    return statements


def add(statements: dict[str, T], more: dict[str, T]) -> None:
    """Add the statements of an extension. A store may add them again, but no other text with the same name."""
    for name, text in more.items():
        if statements.setdefault(name, text) != text:
            raise ValueError(f"an extension has a second statement {name!r}; begin its name with the extension's name")


def shared() -> list[File]:
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
        "pipelines",
    )
    return [("ackwise.store.tables", f"{noun}.sql") for noun in nouns]


def for_psycopg(statement: str) -> str:
    """The statement with psycopg's parameter style."""
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))
