"""A lease is kept alive while Spark works on its batch: Spark says nothing between planning it and the next."""

from __future__ import annotations

import os
import sys
import threading

from ackwise.client.transport import Transport
from ackwise.core.commands import Extend
from ackwise.core.errors import LeaseLost
from ackwise.core.limits import MICROS


class Renewer:
    """A thread beside the query that moves the deadline of the lease it was last given."""

    def __init__(self, transport: Transport, lease: int) -> None:
        self._transport, self._lease = transport, lease
        self._changed = threading.Condition()
        self._lease_id: str | None = None
        self._at_once = False
        self._over = False
        self._parent = os.getppid()
        self._thread = threading.Thread(target=self._run, name="ackwise-renew", daemon=True)
        self._thread.start()

    def keep(self, lease_id: str, *, now: bool = False) -> None:
        """Renew this one from now on, in a third of its time at first unless `now`."""
        with self._changed:
            self._lease_id, self._at_once = lease_id, now
            if now:
                self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._lease_id = None

    def close(self) -> None:
        with self._changed:
            self._lease_id, self._over = None, True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while not self._over:
            with self._changed:
                if not self._at_once and not self._over:
                    self._changed.wait(self._lease / MICROS / 3)
                lease_id, due = self._lease_id, self._at_once
                self._at_once = False
            if os.getppid() != self._parent:
                # The driver is gone; whoever comes next must not find its leases held for ever.
                return
            if lease_id is not None:
                self._renew(lease_id, due)

    def _renew(self, lease_id: str, due: bool) -> None:
        try:
            answer = self._transport.send(Extend(lease_id=lease_id, lease=self._lease, keep_later=True))
            lost = answer.deadline is None
        except LeaseLost:
            lost = True
        except Exception as problem:  # whatever it is, the next time may succeed
            print(f"ackwise: renewing the lease {lease_id}: {problem}", file=sys.stderr)
            return
        if lost:
            with self._changed:
                if self._lease_id == lease_id:
                    self._lease_id = None
            if not due:
                print(f"ackwise: the lease {lease_id} was lost; its messages will come again", file=sys.stderr)
