"""Everything that can be asked without touching anything, and the rows that come back."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ackwise.core import limits
from ackwise.core.answers import QueueInfo
from ackwise.core.messages import QUEUE_MODE, Message
from ackwise.core.tags import spelled

_NAMES = ("queue", "group", "partition", "partition_id", "namespace", "task", "reason", "instance", "key_prefix")
_INSTANTS = ("after_at", "before_at", "unfinished_since")


T = TypeVar("T")


class Page(list[T]):
    """Rows of a list. `next` is the `after` of the following page, None at the end. Only the rows go over the wire."""

    next: Any = None


class Query(msgspec.Struct, kw_only=True, tag=spelled, forbid_unknown_fields=True):
    """Base of all queries. Over the wire each says its name as `type`."""

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
            elif field == "transaction_id":
                limits.transaction_id(value)
            elif field in ("limit", "offset"):
                limits.count(value, field, least=0, most=1 << 31)
            elif field == "after":
                for part in value if isinstance(value, tuple) else (value,):
                    if isinstance(part, str):
                        limits.storable(part, field)
                    else:
                        limits.count(part, field, least=-1, most=1 << 61)


class ListQueues(Query):
    """Queues by name, behind `after`. With `noted` only queues that carry notes of a dialect."""

    namespace: str | None = None
    task: str | None = None
    noted: bool = False
    after: str = ""
    limit: int | None = None


class GetQueue(Query):
    queue: str


class Browse(Query):
    """Messages in seq order, with their state for `group` when one is named.

    A page also ends at `limits.ANSWER_BYTES` and at `limits.MOST_ROWS`: only an empty page is the end.
    """

    queue: str
    partition: str | None = None
    group: str | None = None
    after: tuple[int, int] | None = None
    limit: int = 100


class FindMessage(Query):
    """One message by its partition's uuid and its transaction id: stored, scheduled, or only a dead letter."""

    partition_id: str
    transaction_id: str


class ListDead(Query):
    """Dead letters, newest first. `before_at` and `after_at` bound dead_at, inclusive.

    `after` is the `next` of the previous page. A page also ends at `limits.ANSWER_BYTES` and at `limits.MOST_ROWS`.
    """

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    reason: str | None = None
    after_at: int | None = None
    before_at: int | None = None
    ids: list[str] | None = None
    limit: int = 100
    offset: int = 0
    after: tuple[int, int] | None = None


class ListGroups(Query):
    """Groups by queue and name. `after` is the queue and the group of the previous page's last row."""

    queue: str | None = None
    group: str | None = None
    after: tuple[str, str] | None = None
    limit: int | None = None


class ListCursors(Query):
    """Per lane, where a group stands."""

    queue: str
    group: str


class ListPlaces(Query):
    """Where groups stand in each partition: one row per queue, group and partition.

    `unfinished_since` leaves out the places with nothing older unfinished; `last_done` reads the last finished message.
    """

    group: str | None = None
    queue: str | None = None
    unfinished_since: int | None = None
    last_done: bool = False
    after: tuple[str, str, str] | None = None
    """The queue, the group and the partition of the previous page's last row."""
    limit: int | None = None


class ListGroupNames(Query):
    """Names of groups over all queues, each once."""

    after: str = ""
    limit: int = 1000


class ListPartitions(Query):
    """Numbers of the partitions of one queue or of all. `after` is the queue and the partition of the previous row."""

    queue: str | None = None
    after: tuple[str, str] | None = None
    limit: int | None = None


class ListLanes(Query):
    """The lanes of a queue, each with the seqs [start, head) it holds; with `settled` also how far all are done."""

    queue: str
    settled: bool = False


class ListLeases(Query):
    """Leases, newest first. `key_prefix` is what their claim keys begin with.

    A lease that ran out counts as live until the next turn ends it: its `deadline` says so before.
    """

    queue: str | None = None
    group: str | None = None
    instance: str | None = None
    key_prefix: str | None = None
    live_only: bool = True
    after: str | None = None
    """The id of the previous page's last lease."""
    limit: int = 1000


class ListHeld(Query):
    """What a live lease still holds, by lane and seq; nothing of one that ended, ran out or is not known."""

    lease_id: str


class ListDepths(Query):
    """How many messages wait for a group, by priority, and who holds what; of a queue, or of every one by name.

    It is so now: what a lease held that ran out waits, swept or not. A group that is not there yet waits for
    everything. Of every queue those whose names come after `after` are shown, `limit` of them.
    """

    queue: str | None = None
    group: str = QUEUE_MODE
    after: str = ""
    limit: int | None = None


class IsHeld(Query):
    """Whether anybody holds anything of a queue for a group, under a lease that has not run out."""

    queue: str
    group: str = QUEUE_MODE


class ReadLedger(Query):
    """Minutes, oldest first. `after` is the minute, queue, group and outcome of the previous page's last row."""

    queue: str | None = None
    group: str | None = None
    after_at: int | None = None
    before_at: int | None = None
    after: tuple[int, str, str, str] | None = None
    limit: int | None = None


class QueueStats(Query):
    queue: str


class ListStats(Query):
    """Queues in numbers, by name, behind `after`."""

    namespace: str | None = None
    task: str | None = None
    after: str = ""
    limit: int | None = None


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
    """`next` is the `after` of the following page, None at the end."""

    letters: list[DeadLetter]
    total: int
    next: tuple[int, int] | None = None


class GroupView(msgspec.Struct, frozen=True):
    """How one group stands to a message: `scheduled`, `ready`, `leased`, `waiting`, `acked`, `dead`, `dropped` or
    `skipped`. `error` is the text of its last failure."""

    group: str
    state: str
    deadline: int | None = None
    failures: int = 0
    deliveries: int = 0
    error: str | None = None


class FoundMessage(msgspec.Struct, frozen=True):
    """A message with everything that is known about it; `due_at` while it is scheduled."""

    message: Message
    queue: QueueInfo
    partition: str
    partition_id: str
    priority: int
    due_at: int | None
    groups: list[GroupView]
    dead: list[DeadLetter]


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
    leased: int
    """Messages under a lease; the rest of what is held waits for its next attempt."""
    partitions: int
    partitions_behind: int
    settled_at: int | None
    """When the group last acked something."""
    mode: str
    """Where its subscription begins: `all`, `new` (when it was made) or `from` (an instant)."""
    from_at: int | None
    created_at: int

    @property
    def lag(self) -> int:
        return self.unread + self.held


class PlaceLease(msgspec.Struct, frozen=True):
    """What a lease has to do with one partition: `granted` messages at first, `settled` of them by now."""

    lease_id: str
    owner: str
    made_at: int
    deadline: int
    granted: int
    settled: int


class Place(msgspec.Struct):
    """Where a group stands in a partition, over all its lanes; lag = unread + held.

    `lease` is the newest of those that hold something here. `last_done_id` is the message before the first one that is
    not finished, in the lane that was acked last: the next claim begins behind it. `last_settled_id` is the message
    that the group acked or nacked last.
    """

    queue: str
    group: str
    partition: str
    partition_id: str
    acked: int = 0
    dead: int = 0
    skipped: int = 0
    expired: int = 0
    held: int = 0
    unread: int = 0
    leases: int = 0
    lease: PlaceLease | None = None
    settled_at: int | None = None
    oldest_unfinished_at: int | None = None
    last_done_id: str | None = None
    last_done_created_at: int | None = None
    nacked: int = 0
    last_settled_at: int | None = None
    last_settled_id: str | None = None
    last_settled_created_at: int | None = None

    @property
    def lag(self) -> int:
        return self.unread + self.held


class PartitionRow(msgspec.Struct):
    """A partition in numbers. Messages are pending, processing or completed for the group that is furthest behind in
    the queue (the largest lag; without a group everything is pending): processing ones are under a lease, completed
    ones are stored and neither unfinished nor dead for it. `dead` counts the dead letters of every group."""

    queue: str
    partition: str
    partition_id: str
    messages: int = 0
    scheduled: int = 0
    pending: int = 0
    processing: int = 0
    completed: int = 0
    dead: int = 0
    oldest_at: int | None = None
    newest_at: int | None = None


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


class LaneRow(msgspec.Struct):
    lane: int
    partition: str
    partition_id: str
    priority: int
    start: int
    head: int
    settled: int | None = None
    """Every group has finished everything below it; where no group is there, nothing is."""


class HeldRow(msgspec.Struct):
    """Messages [lo, hi) of a lane with the same past."""

    lane: int
    lo: int
    hi: int
    failures: int
    attempt: int


class HeldLease(msgspec.Struct):
    """A live lease with the messages (lane, priority, lo, hi) that it holds."""

    lease_id: str
    key: str | None
    owner: str
    made_at: int
    deadline: int
    held: list[tuple[int, int, int, int]]


class Depth(msgspec.Struct):
    """Messages that wait, by priority where there are any; live leases, oldest first; and how many ran out."""

    queue: str
    waiting: dict[int, int]
    leases: list[HeldLease]
    expired_leases: int


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

    @property
    def furthest_behind(self) -> GroupStats | None:
        """The group with the largest lag, which says what is pending in the queue."""
        return max(self.groups, key=lambda group: group.lag, default=None)

    @property
    def pending(self) -> int:
        """Messages that the group furthest behind has yet to be handed, scheduled ones included."""
        group = self.furthest_behind
        return self.scheduled + (self.messages if group is None else group.lag - group.leased)

    @property
    def processing(self) -> int:
        """Messages that the group furthest behind holds under a lease."""
        group = self.furthest_behind
        return 0 if group is None else group.leased

    @property
    def completed(self) -> int:
        """Stored messages that the group furthest behind has finished."""
        group = self.furthest_behind
        return 0 if group is None else max(0, self.messages - group.lag - group.dead)


class QueueSummary(msgspec.Struct):
    info: QueueInfo
    stats: Stats
