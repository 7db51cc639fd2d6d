"""Which leases a connection still holds, so that closing it can give them back unspent."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ackwise.client.settling import lease_of
from ackwise.core.answers import Claimed, Settled
from ackwise.core.commands import ByLease, Selector, Settle, Settlement, giving_back
from ackwise.core.settlement import Verdict

_TIDY_AT = 1024
_GONE = (Verdict.ALREADY, Verdict.STALE, Verdict.UNKNOWN)


class Held:
    """Lease ids with their deadlines. Safe to share between threads: each step is one operation of a dict."""

    def __init__(self) -> None:
        self._deadlines: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        """Leases of which something is being settled, and how many calls do."""
        self._guard = threading.Lock()
        self._tidy_at = _TIDY_AT

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, claimed: Claimed, now: int) -> None:
        self._deadlines[claimed.lease_id] = claimed.deadline
        if len(self._deadlines) >= self._tidy_at:
            for lease_id, deadline in list(self._deadlines.items()):
                if deadline <= now:
                    self.drop(lease_id)
            self._tidy_at = max(_TIDY_AT, 2 * len(self._deadlines))

    def live(self, now: int) -> int:
        """How many are not over yet."""
        return sum(deadline > now for deadline in list(self._deadlines.values()))

    def extended(self, lease_id: str, deadline: int) -> None:
        if lease_id in self._deadlines:
            self._deadlines[lease_id] = deadline

    def drop(self, lease_id: str) -> None:
        self._deadlines.pop(lease_id, None)

    def ask(self, entries: Iterable[Settlement]) -> set[str]:
        """A call that settles these is under way, until it is `answered`."""
        leases = {lease for one in entries if (lease := lease_of(one.selector)) is not None}
        with self._guard:
            for lease in leases:
                self._asked[lease] = self._asked.get(lease, 0) + 1
        return leases

    def answered(self, leases: set[str]) -> None:
        with self._guard:
            for lease in leases:
                self._asked[lease] -= 1
                if not self._asked[lease]:
                    del self._asked[lease]

    def is_asked(self, lease_id: str) -> bool:
        return lease_id in self._asked

    def note(self, selector: Selector, answer: Settled) -> None:
        """Forget a lease that a settlement ended, or that turned out to be gone."""
        if answer.lease_ended or (isinstance(selector, ByLease) and answer.verdict in _GONE):
            lease_id = lease_of(selector) or answer.lease_id
            if lease_id is not None:
                self.drop(lease_id)

    def release(self) -> Settle | None:
        """The command that gives everything back, or None when nothing is held."""
        ids, self._deadlines = list(self._deadlines), {}
        return giving_back(ids) if ids else None
