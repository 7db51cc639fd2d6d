"""What newer clients leave behind when a message of a batch fails."""

from __future__ import annotations

MOST = 100_000


class Failing:
    """Leases whose holder's last word was a failure.

    Newer clients leave the rest of a batch alone after a nack and simply pop again, trusting that the nack released it.
    Older ones go on with the rest, and say so with their next ack. Whoever pops next, from the same machine, for the
    same queue and group, and finds nothing else, is taken to be of the first kind.
    """

    def __init__(self) -> None:
        self._leases: dict[tuple[str, str, str], dict[str, None]] = {}
        self._keys: dict[str, tuple[str, str, str]] = {}

    def note(self, host: str, queue: str, group: str, lease_id: str) -> None:
        if len(self._keys) >= MOST:
            self._leases.clear()
            self._keys.clear()
        self._leases.setdefault((host, queue, group), {})[lease_id] = None
        self._keys[lease_id] = (host, queue, group)

    def goes_on(self, lease_id: str) -> None:
        key = self._keys.pop(lease_id, None)
        if key is not None:
            leases = self._leases[key]
            del leases[lease_id]
            if not leases:
                del self._leases[key]

    def left_by(self, host: str, queue: str, group: str) -> list[str]:
        """The leases that consumers there have left behind."""
        found = list(self._leases.get((host, queue, group), ()))
        for lease_id in found:
            self.goes_on(lease_id)
        return found
