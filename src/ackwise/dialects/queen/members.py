"""Who consumes for a group: whoever holds a lease of it, or asked for messages within the last minute."""

from __future__ import annotations

from collections.abc import Iterable

from ackwise.core.limits import MICROS

SEEN_FOR = 60 * MICROS
MOST = 100_000


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
