"""What was handed to this app and is not settled."""

from __future__ import annotations

import time

from ackwise.subscriber.feeds.jetstream.handover import NATSHandover


class Held:
    """`working`: waits for its handler, or is in it, and is kept alive. What a handler left unsettled counts until
    JetStream stops waiting for it."""

    def __init__(self) -> None:
        self.working: set[NATSHandover] = set()
        self._left: set[NATSHandover] = set()

    def begin(self, handover: NATSHandover) -> None:
        self.working.add(handover)

    def leave(self, handover: NATSHandover) -> None:
        if handover in self.working:
            self.working.discard(handover)
            if handover.awaited:
                self._left.add(handover)

    def over(self, handover: NATSHandover) -> None:
        self.working.discard(handover)
        self._left.discard(handover)

    def __len__(self) -> int:
        if self._left:
            now = time.monotonic()
            self._left = {one for one in self._left if one.until > now}
        return len(self.working) + len(self._left)
