"""The embedded default: one file, one writer, readers beside it."""

from ackwise.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
