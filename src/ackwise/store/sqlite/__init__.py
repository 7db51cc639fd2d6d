"""The SQLite store: one file, one writer, several readers. It is the default."""

from ackwise.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
