"""The queue of orders that tests of the AMPS client share."""

from __future__ import annotations

import threading

import ackwise
from ackwise.amps import Client
from tests.patience import PATIENCE

ORDERS = "queue://orders"


def lag(orders: ackwise.Connection, queue: str = "orders") -> int:
    return sum(group.lag for group in orders.groups(queue))


def until_pending(client: Client, count: int) -> None:
    """A handler's acks are gathered after it returns."""
    done = threading.Event()
    for _ in range(int(PATIENCE / 0.002)):
        if client.pending_acks == count:
            return
        done.wait(0.002)
    raise AssertionError(client.pending_acks)
