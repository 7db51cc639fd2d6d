"""A broker in a process of its own, run with `-m tests.faults.clock.peer URL`: one JSON request a line, one answer."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import ackwise
from ackwise.clock import wall_now
from ackwise.core.queries import ListLeases


class Peer:
    """A connection, and what a test asks of it."""

    def __init__(self, url: str) -> None:
        self._connection = ackwise.connect(url)
        self._held: dict[str, Any] = {}

    def push(self, name: str, delay: float = 0.0) -> None:
        self._connection.push("q", name, delay=delay or None)

    def claim(self, lease: float, wait: float = 0.0, most: int = 10) -> list[str]:
        """The payloads of the claimed messages."""
        batch = self._connection.claim("q", max=most, lease=lease, wait=wait)
        self._held |= {delivery.json(): delivery for delivery in batch}
        return [delivery.json() for delivery in batch]

    def retry(self, name: str, delay: float) -> str:
        return str(self._held.pop(name).retry(delay=delay))

    def extend(self, name: str, seconds: float) -> None:
        self._held[name].extend(seconds)

    def ack(self, name: str) -> str:
        return str(self._held.pop(name).ack())

    def left(self) -> dict[str, float]:
        """Seconds that each live lease has left, as people compute it from what they read."""
        transport: Any = self._connection.transport
        leases = transport.ask(ListLeases(live_only=True))
        return {lease.lease_id: (lease.deadline - wall_now(transport.store.clock)) / 1e6 for lease in leases}

    def shown(self, name: str) -> float:
        """Seconds until the deadline of a delivery, by the machine's wall clock."""
        return float(self._held[name].deadline.timestamp()) - time.time()

    def age(self, name: str) -> float:
        """Seconds since the creation of a message, by the machine's wall clock."""
        return time.time() - float(self._held[name].created_at.timestamp())

    def shift(self) -> float:
        transport: Any = self._connection.transport
        return float(transport.store.clock.shift()) / 1e6

    def close(self) -> None:
        self._connection.close()


def main() -> int:
    peer = Peer(sys.argv[1])
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        print(json.dumps(getattr(peer, verb)(*arguments)), flush=True)
    peer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
