"""Dead letters for tests of the dashboard."""

from __future__ import annotations

import ackwise


def kill(
    queue: ackwise.Connection,
    name: str,
    group: str | None,
    *errors: str,
    partition: str = "Default",
    payload: object = None,
) -> None:
    """Push one message for each error, and reject it with the error."""
    for error in errors:
        queue.push(name, payload, partition=partition)
        for delivery in queue.claim(name, group=group, owner="worker-1"):
            delivery.reject(error)
