"""Memory of open transactions: limits the statements that sessions keep until COMMIT."""

from __future__ import annotations

import msgspec

from ackwise.graph import ast as s
from ackwise.graph import errors

MOST_EACH = 8 << 20
MOST_ALL = 64 << 20
"""Bytes of the open transaction of one session, and of all sessions of a server."""


class TransactionMemory:
    """Counts the bytes of open transactions of all sessions that share it."""

    def __init__(self, each: int = MOST_EACH, most: int = MOST_ALL) -> None:
        self._each, self._most = each, most
        self.used = 0

    def check(self, held: int, more: int) -> None:
        """Refuse `more` bytes for a transaction that holds `held` bytes."""
        if held + more > self._each:
            raise errors.statement_limit("transaction", self._each)
        if self.used + more > self._most:
            raise errors.statement_limit("transactions", self._most)


def size_of(statement: s.Statement) -> int:
    """The approximate size of a statement in bytes, with the values of its parameters."""
    return len(msgspec.json.encode(statement))
