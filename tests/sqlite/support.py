"""Stores on a file, and a look at its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from ackwise.clock import ManualClock
from ackwise.core import commands as c
from ackwise.core.messages import NewMessage
from ackwise.store.sqlite import SQLiteStore


def open_store(
    path: Path, clock: ManualClock | None = None, options: str = "durability=normal", **rest: Any
) -> SQLiteStore:
    return SQLiteStore(f"sqlite:///{path}?{options}", clock=clock or ManualClock(), **rest)


def push(store: SQLiteStore, *txids: str, payload: bytes = b"{}", queue: str = "q") -> list[str]:
    """Statuses of messages pushed with these transaction ids in one call."""
    messages = [NewMessage(payload, transaction_id=txid) for txid in txids]
    (answer,) = store.transact([c.Push(queue=queue, messages=messages)])
    if isinstance(answer, Exception):
        raise answer
    return [receipt.status for receipt in answer]


def rows(path: Path, statement: str) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()
