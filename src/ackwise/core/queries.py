"""Everything that can be asked without touching anything, and the rows that come back."""

from __future__ import annotations

import msgspec

from ackwise.core import limits
from ackwise.core.messages import Message

_NAMES = ("queue", "group", "partition", "namespace", "task", "reason", "instance")
_INSTANTS = ("after_at", "before_at")


class Query(msgspec.Struct, kw_only=True):
    """Base of all queries."""

    def check(self) -> None:
        """Refuse names and numbers that no store can look for."""
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if value is None:
                continue
            if field in _NAMES:
                limits.name(value, field)
            elif field in _INSTANTS:
                limits.instant(value, field)
            elif field in ("limit", "offset"):
                limits.count(value, field, least=0, most=1 << 31)


class ListQueues(Query):
    namespace: str | None = None
    task: str | None = None


class GetQueue(Query):
    queue: str


class Browse(Query):
    """Messages in seq order, with their state for `group` when one is named."""

    queue: str
    partition: str | None = None
    group: str | None = None
    after: tuple[int, int] | None = None
    limit: int = 100


class ListDead(Query):
    """Dead letters, newest first. `before_at` and `after_at` bound dead_at, inclusive."""

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    reason: str | None = None
    after_at: int | None = None
    before_at: int | None = None
    ids: list[str] | None = None
    limit: int = 100
    offset: int = 0


class ListGroups(Query):
    queue: str | None = None
    group: str | None = None


class ListCursors(Query):
    """Per lane, where a group stands."""

    queue: str
    group: str


class ListLeases(Query):
    queue: str | None = None
    group: str | None = None
    instance: str | None = None
    live_only: bool = True
    limit: int = 1000


class ReadLedger(Query):
    queue: str | None = None
    group: str | None = None
    after_at: int | None = None
    before_at: int | None = None


class QueueStats(Query):
    queue: str


class BrowsedMessage(msgspec.Struct, frozen=True):
    message: Message
    partition: str
    partition_id: str
    priority: int
    state: str | None


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that will not be delivered again unless somebody redrives or replays it."""

    id: str
    queue: str
    partition: str
    partition_id: str
    group: str
    seq: int
    message_id: str
    transaction_id: str
    reason: str
    error: str
    error_type: str
    failures: int
    deliveries: int
    history: list[dict[str, object]]
    payload: bytes
    headers: dict[str, str]
    content_type: str
    created_at: int
    dead_at: int


class DeadPage(msgspec.Struct):
    letters: list[DeadLetter]
    total: int


class GroupStats(msgspec.Struct):
    """A group's counts over its queue; lag = unread + held."""

    queue: str
    group: str
    acked: int
    dead: int
    skipped: int
    expired: int
    held: int
    unread: int
    leases: int
    oldest_unfinished_at: int | None
    members: list[str]

    @property
    def lag(self) -> int:
        return self.unread + self.held


class CursorRow(msgspec.Struct):
    partition: str
    partition_id: str
    priority: int
    lane: int
    start: int
    head: int
    epoch: int
    first: int
    next: int
    held: int
    acked: int
    dead: int
    skipped: int
    expired: int
    leased: int
    ready_at: int | None


class LeaseRow(msgspec.Struct):
    lease_id: str
    queue: str
    group: str
    owner: str
    key: str | None
    made_at: int
    deadline: int
    ended_at: int | None
    end_kind: str | None
    granted: int
    held: int


class LedgerRow(msgspec.Struct):
    """One minute of one outcome; `latency` maps a bucket's upper bound in microseconds to its count."""

    queue: str
    group: str
    minute: int
    outcome: str
    count: int
    latency: dict[int, int]


class Stats(msgspec.Struct):
    """A queue in numbers."""

    queue: str
    partitions: int
    lanes: int
    messages: int
    scheduled: int
    dead: int
    groups: list[GroupStats]
