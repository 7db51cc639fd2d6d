# Generated from ../aio/working_leases.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Leases that work runs under: one keeper per connection extends them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ackwise.client.sync.lease import Lease
from ackwise.client.sync.lease_keeper import LeaseKeeper, extend_all
from ackwise.client.transport import Transport
from ackwise.core.errors import AckwiseError


class WorkingLeases:
    """Extends a lease from the first `begin` to the last `end`.

    A consume loop works under the leases of its batches. A `with` block works under the lease of its delivery or batch.
    The keeper, with its task or thread, starts with the first lease.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._keeper: LeaseKeeper[Lease] | None = None
        self._users: dict[Lease, int] = {}
        self._guard = threading.Lock()

    def begin(self, lease: Lease) -> None:
        """Extend the lease until `end`. Does nothing for a lease that has ended."""
        if lease.ended:
            return
        with self._guard:
            users = self._users.get(lease, 0)
            self._users[lease] = users + 1
            if users:
                return
            if self._keeper is None:
                self._keeper = LeaseKeeper(self._transport.now, self._extend)
            self._keeper.keep(lease)

    def end(self, lease: Lease) -> None:
        """End one use of the lease. After the last one nothing extends the lease."""
        with self._guard:
            users = self._users.pop(lease, 0) - 1
            if users > 0:
                self._users[lease] = users
            elif self._keeper is not None:
                self._keeper.drop(lease)

    def check_soon(self) -> None:
        """Check the leases now, for example because a manual clock was moved."""
        if self._keeper is not None:
            self._keeper.check_soon()

    def close(self) -> None:
        """Stop extending."""
        if self._keeper is not None:
            self._keeper.close()

    def _extend(self, leases: Sequence[Lease], /) -> list[AckwiseError | None]:
        return extend_all(self._transport, leases)
