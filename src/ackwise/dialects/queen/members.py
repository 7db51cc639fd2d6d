"""Who consumes for a group: whoever holds a lease of it, or asked for messages within the last minute."""

from __future__ import annotations

from collections.abc import Iterable

from ackwise.core.limits import MICROS

SEEN_FOR = 60 * MICROS
MOST = 100_000


class Failing:
    """Leases whose holder's last word was a failure.

    Newer clients leave the rest of a batch alone after a nack and simply pop again, trusting that the nack released it.
    Older ones go on with the rest, and say so with their next ack. Whoever pops first, from the same machine, for the
    same queue and group, is taken to be of the first kind.
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


class Members:
    """Pollers by queue and group. Kept in memory: who asked this server, and how long ago."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], dict[str, int]] = {}
        self._holders: dict[str, str] = {}
        self._count = 0

    def note(self, queue: str, group: str, peer: str, now: int, owner: str | None = None) -> None:
        """`peer` asked for messages; `owner` is the lease it was given."""
        peers = self._seen.setdefault((queue, group), {})
        self._count += peer not in peers
        peers[peer] = now
        if owner is not None:
            self._holders[owner] = peer
        if self._count > MOST or len(self._holders) > MOST:
            self._forget(now)

    def count(self, queue: str, group: str, owners: Iterable[str], now: int) -> int:
        """Consumers of a group: recent pollers, and the holders of these leases who have not polled since."""
        peers = {peer for peer, at in self._seen.get((queue, group), {}).items() if now - at <= SEEN_FOR}
        return len(peers | {self._holders.get(owner, owner) for owner in owners})

    def _forget(self, now: int) -> None:
        """Those not seen for long go first; if that is not enough, everybody: it is only a count."""
        for key, peers in list(self._seen.items()):
            recent = {peer: at for peer, at in peers.items() if now - at <= SEEN_FOR}
            if recent:
                self._seen[key] = recent
            else:
                del self._seen[key]
        self._holders.clear()
        self._count = sum(map(len, self._seen.values()))
        if self._count > MOST:
            self._seen.clear()
            self._count = 0
