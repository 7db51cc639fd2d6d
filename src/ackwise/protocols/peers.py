"""Connections of a listener, counted by peer address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network


class Peers:
    """Counts connections by the address that opened them, so that one address cannot take them all."""

    def __init__(self, max_connections: int = 10_000, share: float = 1.0) -> None:
        self.max_connections = max_connections
        self.most = max(1, int(max_connections * share))
        self._open: Counter[str] = Counter()

    @property
    def connections(self) -> int:
        return sum(self._open.values())

    def enter(self, address: str) -> bool:
        """Counts one connection. Returns False if the address has too many."""
        self._open[address] += 1
        return self._open[address] <= self.most

    def leave(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


def address_of(client: Sequence[object] | None) -> str:
    """The address under which a peer counts, without its port."""
    return counted(str(client[0])) if client else "local"


@lru_cache(maxsize=4096)
def counted(address: str) -> str:
    """An IPv4 address as it is, and the /64 of an IPv6 address: one machine can use every address of its /64."""
    if ":" not in address:
        return address
    try:
        ipv6 = IPv6Address(address)
    except ValueError:
        return address
    mapped = ipv6.ipv4_mapped
    return str(mapped) if mapped is not None else str(IPv6Network((int(ipv6) >> 64 << 64, 64)))
