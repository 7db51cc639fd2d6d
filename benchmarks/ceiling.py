"""The ceiling: the same segment rows written by bare apsw, one durable commit per batch, no dedupe, no cursors."""

from __future__ import annotations

from pathlib import Path

import apsw

from ackwise.engine.segment import MessageColumns, pack


class Ceiling:
    """Rate that the disk and SQLite alone allow."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        for pragma in ("journal_mode = wal", "synchronous = 2", "wal_autocheckpoint = 0"):
            list(self._connection.execute(f"PRAGMA {pragma}"))
        list(
            self._connection.execute(
                "CREATE TABLE segment (pos INTEGER PRIMARY KEY, first INTEGER NOT NULL,"
                " created_at INTEGER NOT NULL, body BLOB NOT NULL)"
            )
        )
        self._seq = 0

    def push(self, payload: bytes, batch: int, batches: int) -> int:
        for _ in range(batches):
            body = pack(MessageColumns(self._seq, [""] * batch, [payload] * batch))
            self._connection.execute("BEGIN IMMEDIATE").fetchall()
            row = (self._seq + batch - 1, self._seq, 1, body)
            self._connection.execute("INSERT INTO segment VALUES (?, ?, ?, ?)", row).fetchall()
            self._connection.execute("COMMIT").fetchall()
            self._seq += batch
        return batch * batches

    def close(self) -> None:
        self._connection.close()
