"""How long a sink waits before it looks again."""

from __future__ import annotations

FLOWING = 1.0
LONGEST_EMPTY = 60.0
LONGEST_FULL = 4.0


class Pace:
    """A second while items flow; twice as long each time there is nothing, or no room for more."""

    def __init__(self) -> None:
        self.seconds = FLOWING

    def flowing(self) -> None:
        self.seconds = FLOWING

    def empty(self) -> None:
        self.seconds = min(2 * self.seconds, LONGEST_EMPTY)

    def full(self) -> None:
        self.seconds = min(2 * self.seconds, LONGEST_FULL)
