"""Writer memory: facts that a writer keeps between turns, so that a claim needs fewer queries."""

from __future__ import annotations

from ackwise.core.ids import GroupId, LeaseNo

UNKNOWN = 0
NEVER = 1 << 62
MOST_GROUPS = 10_000


class WriterMemory:
    """Facts about the store that stay true while only this writer changes it. Such a writer needs no row locks.

    If other writers also change the database, `alone` is False. The writer then has a new memory in each turn, and this
    memory learns nothing. A rollback empties the memory, because it may contain changes that did not happen.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self.alone = alone
        self.forget()

    def forget(self) -> None:
        self.expires_from = UNKNOWN
        """No lease expires before this instant."""
        self.promotes_from = UNKNOWN
        """No scheduled message is due before this instant."""
        self.last_lease: LeaseNo | None = None
        self.without_queue_lease: set[GroupId] = set()
        """Groups in which no lease holds the whole queue."""

    def note_lease(self, grp: GroupId, deadline: int, *, whole_queue: bool = False) -> None:
        """Record a lease that is new or has a new deadline."""
        self.expires_from = min(self.expires_from, deadline)
        if whole_queue:
            self.without_queue_lease.discard(grp)

    def note_scheduled(self, due_at: int) -> None:
        self.promotes_from = min(self.promotes_from, due_at)

    def learn_next_deadline(self, deadline: int | None) -> None:
        if self.alone:
            self.expires_from = NEVER if deadline is None else deadline

    def learn_next_scheduled(self, due_at: int | None) -> None:
        if self.alone:
            self.promotes_from = NEVER if due_at is None else due_at

    def learn_no_queue_lease(self, grp: GroupId) -> None:
        if self.alone:
            if len(self.without_queue_lease) >= MOST_GROUPS:
                self.without_queue_lease.clear()
            self.without_queue_lease.add(grp)
