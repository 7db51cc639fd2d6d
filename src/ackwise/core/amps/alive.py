"""How each end learns that the other is gone without a word: TCP asks after it, and gives up on what nobody takes."""

from __future__ import annotations

from types import ModuleType
from typing import Protocol

_OPTIONS = (
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),
    ("IPPROTO_TCP", "TCP_KEEPIDLE", 15),
    ("IPPROTO_TCP", "TCP_KEEPINTVL", 5),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 3),
    ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 30_000),
)


class Socket(Protocol):
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...


def ask_after(sock: Socket, names: ModuleType) -> None:
    """`names` is the `socket` module; what this system does not know is left out."""
    for level, option, value in _OPTIONS:
        if hasattr(names, option):
            sock.setsockopt(getattr(names, level), getattr(names, option), value)
