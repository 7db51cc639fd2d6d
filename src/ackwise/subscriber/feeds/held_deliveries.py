"""Deliveries that an app holds, and their leases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ackwise.client.aio.lease_keeper import AsyncLeaseKeeper
from ackwise.client.kept_lease import KeptLease

L = TypeVar("L", bound=KeptLease)
D = TypeVar("D")


class HeldDeliveries(Generic[L, D]):
    """Deliveries that an app holds. The keeper extends a lease while a delivery under it waits or is handled.

    A delivery that its handler left unsettled counts as held until its deadline, and its lease is not extended.
    """

    def __init__(self, keeper: AsyncLeaseKeeper[L], on_lost: Callable[[D], None]) -> None:
        self.keeper, self._on_lost = keeper, on_lost
        self._working: dict[L, set[D]] = {}
        self._unsettled: dict[L, set[D]] = {}
        self._count = self._unsettled_count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def working(self) -> int:
        """Number of deliveries that wait for their handler or are handled."""
        return self._count - self._unsettled_count

    def hold(self, delivery: D, lease: L) -> None:
        deliveries = self._working.get(lease)
        if deliveries is None:
            deliveries = self._working[lease] = set()
            self.keeper.keep(lease, self._lose)
        deliveries.add(delivery)
        self._count += 1

    def leave(self, delivery: D, lease: L) -> None:
        """Stop extending for a delivery that its handler left unsettled."""
        if _discard(self._working, lease, delivery):
            self._unsettled.setdefault(lease, set()).add(delivery)
            self._unsettled_count += 1
            self._stop_extending(lease)

    def forget(self, delivery: D, lease: L) -> None:
        """Forget a delivery that is settled."""
        if _discard(self._working, lease, delivery):
            self._count -= 1
        elif _discard(self._unsettled, lease, delivery):
            self._count -= 1
            self._unsettled_count -= 1
        self._stop_extending(lease)

    def _stop_extending(self, lease: L) -> None:
        """Stop extending the lease if no delivery under it waits or is handled."""
        if lease in self._unsettled and lease not in self._working:
            self.keeper.keep(lease, self._lose, extend=False)
        elif lease not in self._working:
            self.keeper.drop(lease)

    def _lose(self, lease: L) -> None:
        working, unsettled = self._working.pop(lease, set()), self._unsettled.pop(lease, set())
        self._count -= len(working) + len(unsettled)
        self._unsettled_count -= len(unsettled)
        for delivery in (*working, *unsettled):
            self._on_lost(delivery)


def _discard(by_lease: dict[L, set[D]], lease: L, delivery: D) -> bool:
    """Remove the delivery, and its lease with the last delivery. False if it is not there."""
    deliveries = by_lease.get(lease)
    if deliveries is None or delivery not in deliveries:
        return False
    deliveries.discard(delivery)
    if not deliveries:
        del by_lease[lease]
    return True
