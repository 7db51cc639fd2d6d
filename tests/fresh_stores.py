"""Stores without messages whose tables exist already. To create the tables takes longer than most tests."""

from __future__ import annotations

import tempfile
from enum import Enum
from functools import cache
from pathlib import Path

from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.engine.extensions import Extension
from ackwise.graph.engine.extension import GRAPH


class Tables(Enum):
    """Tables that a database has: none, those of queues, or also those of the graph. A server creates both."""

    NONE = "none"
    QUEUES = "queues"
    GRAPH = "graph"

    @property
    def extensions(self) -> tuple[Extension, ...]:
        return (GRAPH,) if self is Tables.GRAPH else ()


def create_tables(url: str, tables: Tables) -> None:
    """Open and close a store, as its first program does."""
    store = open_store(url, clock=ManualClock())
    for extension in tables.extensions:
        store.extensions.add(extension)
    store.close()


@cache
def _new_file(tables: Tables) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        create_tables(f"sqlite:///{folder}/new.db", tables)
        return Path(folder, "new.db").read_bytes()


def sqlite_url(path: Path, tables: Tables = Tables.GRAPH) -> str:
    """The URL of a new SQLite store at `path`. Its commits do not wait for the disk."""
    path.write_bytes(_new_file(tables))
    return f"sqlite:///{path}?durability=normal"
