"""Leases in subscribers' hands. The engine decides what becomes of them; here is counted how much room is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ackwise.dialects.amps.subscription import Subscription


class Handout:
    """One lease: how many of its messages are not settled, and until when they are held."""

    __slots__ = ("deadline", "lease_id", "left", "subscription")

    def __init__(self, subscription: Subscription, lease_id: str, count: int, deadline: int) -> None:
        self.subscription, self.lease_id, self.left, self.deadline = subscription, lease_id, count, deadline


class Handouts:
    """Leases by their number, whoever settles them: any connection may."""

    def __init__(self) -> None:
        self._leases: dict[int, Handout] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, lease: int) -> Handout | None:
        return self._leases.get(lease)

    def add(self, lease: int, handout: Handout) -> None:
        self._leases[lease] = handout
        handout.subscription.leases[lease] = handout
        handout.subscription.held += handout.left

    def settled(self, lease: int, count: int, ended: bool) -> None:
        """So many of its messages are no longer held."""
        handout = self._leases.get(lease)
        if handout is None:
            return
        count = handout.left if ended else min(count, handout.left)
        handout.left -= count
        if not handout.left:
            self._drop(lease)
        handout.subscription.freed(count)

    def take(self, subscription: Subscription) -> list[str]:
        """Everything a subscription holds is somebody else's business from now on."""
        leases = [handout.lease_id for handout in subscription.leases.values()]
        for lease in list(subscription.leases):
            self._drop(lease)
        subscription.held = 0
        return leases

    def run_out(self, now: int) -> None:
        for lease, handout in list(self._leases.items()):
            if handout.deadline <= now:
                self._drop(lease)
                handout.subscription.lost(handout.left)

    def _drop(self, lease: int) -> None:
        handout = self._leases.pop(lease, None)
        if handout is not None:
            handout.subscription.leases.pop(lease, None)
