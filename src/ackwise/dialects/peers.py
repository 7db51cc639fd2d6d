"""Connections of a listener, counted by peer address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


class Peers:
    """Counts connections by the address that opened them, so that one address cannot take them all."""

    def __init__(self, max_connections: int = 10_000, share: float = 1.0) -> None:
        self.max_connections = max_connections
        self.most = max(1, int(max_connections * share))
        self._open: Counter[str] = Counter()

    def enter(self, address: str) -> bool:
        """Counts one connection; False when the address has too many."""
        self._open[address] += 1
        return self._open[address] <= self.most

    def leave(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


def address_of(client: Sequence[object] | None) -> str:
    """The peer's address without its port."""
    return str(client[0]) if client else "local"
