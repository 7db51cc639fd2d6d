"""Members of a consumer group: consumers that hold a lease of the group or polled within the last minute."""

from __future__ import annotations

from collections.abc import Iterable

from ackwise.core import limits
from ackwise.core.limits import MICROS
from ackwise.dialects.http import Call

SEEN_FOR = 60 * MICROS
MOST = 100_000


def consumer_of(call: Call) -> str:
    """The client id that a request names (`clientId`, or the header `X-Client-Id`), else its peer's host address."""
    named = call.query.get("clientId") or call.header(b"x-client-id").decode("latin-1")
    return limits.name(named, "clientId") if named else call.host


class Members:
    """Consumers by queue and group. Keeps in memory which consumers polled this server, and when."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], dict[str, int]] = {}
        self._holders: dict[str, str] = {}
        self._count = 0

    def note(self, queue: str, group: str, consumer: str, now: int, owner: str | None = None) -> None:
        """Record a poll of `consumer`. `owner` is the lease that the poll got."""
        consumers = self._seen.setdefault((queue, group), {})
        self._count += consumer not in consumers
        consumers[consumer] = now
        if owner is not None:
            self._holders[owner] = consumer
        if self._count > MOST or len(self._holders) > MOST:
            self._forget(now)

    def of(self, queue: str, group: str, owners: Iterable[str], now: int) -> set[str]:
        """Consumers of a group: recent pollers, and the holders of these leases that have not polled since.

        This server does not know the holders of leases that another server granted. Each such lease counts as one
        consumer.
        """
        # Lists call this in a helper thread while polls call `note`: only a copy keeps its size.
        seen = self._seen.get((queue, group), {}).copy()
        recent = {name for name, at in seen.items() if now - at <= SEEN_FOR}
        return recent | {self._holders.get(owner, owner) for owner in owners}

    def _forget(self, now: int) -> None:
        """Drop consumers that did not poll for a minute. If that is not enough, drop all: the count may be too low."""
        for key, consumers in list(self._seen.items()):
            recent = {name: at for name, at in consumers.items() if now - at <= SEEN_FOR}
            if recent:
                self._seen[key] = recent
            else:
                del self._seen[key]
        self._holders.clear()
        self._count = sum(map(len, self._seen.values()))
        if self._count > MOST:
            self._seen.clear()
            self._count = 0
