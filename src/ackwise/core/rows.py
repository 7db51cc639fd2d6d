"""Rows that queries return. A store answers with instants in microseconds, a client makes datetimes of them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from ackwise.core.answers import QueueInfo
from ackwise.core.ids import LaneId
from ackwise.core.lane_range import LaneRange
from ackwise.core.messages import Message
from ackwise.core.pipelines import PipelineReport
from ackwise.core.structs import Instant, LatencyBound

T = TypeVar("T")


class Page(list[T]):
    """Rows of a list. `next` is the `after` of the following page, None at the end. The wire carries only the rows."""

    next: Any = None


class BrowsedMessage(msgspec.Struct, frozen=True):
    message: Message
    partition: str
    partition_id: str
    priority: int
    state: str | None
    due_at: int | None = None
    """When a scheduled message becomes claimable. Other messages have None."""


class NewestPage(msgspec.Struct):
    """Messages that match, newest first, and where the search goes on.

    `next` is the `after` of the following call. It may be set after an empty page: the search stops after a bounded
    number of messages. None is the end. `scanned` counts the messages that the call compared.
    `incomplete`: a queue with very many partitions has more messages here than the search sees. Name a partition.
    """

    messages: list[BrowsedMessage]
    next: tuple[int, int, int] | None
    scanned: int
    incomplete: bool = False


class DeadLetter(msgspec.Struct, Generic[Instant], frozen=True):
    """A message that is delivered again only after a redrive or a replay."""

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
    created_at: Instant
    dead_at: Instant
    kind: str = ""
    """The error with its variable parts replaced by placeholders."""


class DeadKind(msgspec.Struct, Generic[Instant], frozen=True):
    """Dead letters of a queue whose errors are of one kind. `reasons` counts them by reason. `example_` is one letter.

    The kind is empty if the letters have no error text.
    """

    queue: str
    kind: str
    count: int
    reasons: dict[str, int]
    first_at: Instant
    last_at: Instant
    example_id: str
    example_error: str
    example_error_type: str


class TimeSeries(msgspec.Struct, Generic[Instant]):
    """Counts in equal time buckets, by name. Bucket `i` begins `i * step` microseconds after `first_at`."""

    first_at: Instant
    step: int
    counts: dict[str, list[int]]
    """One number for each bucket."""


class DeadPage(msgspec.Struct):
    """`next` is the `after` of the following page, None at the end."""

    letters: list[DeadLetter]
    total: int
    next: tuple[int, int] | None = None


class GroupView(msgspec.Struct, frozen=True):
    """State of a message for one group.

    `state` is `scheduled`, `ready`, `leased`, `waiting`, `acked`, `dead`, `dropped` or `skipped`. `error` is the text
    of the last failure. `history` has the ended deliveries of a held or dead message, oldest first.
    """

    group: str
    state: str
    deadline: int | None = None
    failures: int = 0
    deliveries: int = 0
    error: str | None = None
    lease_id: str | None = None
    owner: str = ""
    due_at: int | None = None
    """When a waiting message becomes claimable."""
    held_since: int | None = None
    history: list[dict[str, object]] = []


class FoundMessage(msgspec.Struct, frozen=True):
    """A message with its queue, partition, state per group and dead letters. `due_at` is set while it is scheduled."""

    message: Message
    queue: QueueInfo
    partition: str
    partition_id: str
    priority: int
    due_at: int | None
    groups: list[GroupView]
    dead: list[DeadLetter]


class MessageHolder(msgspec.Struct, frozen=True):
    """The lease that holds a message, since `since` and until `deadline`. A lease past its deadline ends soon."""

    lease_id: str
    owner: str
    since: int
    deadline: int


class TimelineEvent(msgspec.Struct, frozen=True):
    """How a delivery ended, or what else happened to a message for a group.

    `event` is `retry`, `reject`, `release`, `lease_expiry`, `max_wait`, `redrive` or `dead`. The store keeps the newest
    20 events of a message, and only the newest trace.
    """

    at: int
    event: str
    owner: str | None
    error: str | None = None
    error_type: str | None = None
    trace: str | None = None


class GroupTimeline(msgspec.Struct):
    """What happened to a message in one group, oldest event first.

    `state` is that of `GroupView`. `due_at` is the next attempt of a waiting message. `letter_id` and `reason` are
    those of its dead letter. The store forgets the events of a message that was acked.
    """

    group: str
    state: str
    failures: int = 0
    deliveries: int = 0
    due_at: int | None = None
    holder: MessageHolder | None = None
    letter_id: str | None = None
    reason: str | None = None
    events: list[TimelineEvent] = []


class GroupStats(msgspec.Struct, Generic[Instant], frozen=True):
    """Counts of a group over its queue. lag = unread + held."""

    queue: str
    group: str
    acked: int
    dead: int
    skipped: int
    expired: int
    held: int
    unread: int
    leases: int
    oldest_unfinished_at: Instant | None
    members: list[str]
    leased: int
    """Held messages under a lease. The other held messages wait for their next attempt."""
    partitions: int
    partitions_behind: int
    settled_at: Instant | None
    """When the group last acked something."""
    mode: str
    """Where the group starts: `all`, `new` (at its creation) or `from` (an instant)."""
    from_at: Instant | None
    created_at: Instant
    oldest_claimable_at: Instant | None = None
    """When the oldest message was created that a claim could take now."""
    policy: dict[str, object] = {}
    """The group's own policy. An absent field has the queue's value."""

    @property
    def lag(self) -> int:
        return self.unread + self.held


class GroupDetails(msgspec.Struct):
    """A group with its counts, its own policy and its version."""

    stats: GroupStats
    policy: dict[str, object]
    version: str


class PlaceLease(msgspec.Struct, frozen=True):
    """A lease's share of one partition: the number of `granted` messages, and of those `settled` by now."""

    lease_id: str
    owner: str
    made_at: int
    deadline: int
    granted: int
    settled: int


class HookRow(msgspec.Struct):
    """A hook of a queue's dead letters. `pending` says whether letters wait for it."""

    queue: str
    name: str
    url: str | None
    include_payload: bool
    paused: bool
    error: str
    failures: int
    failing_since: int | None
    retry_in: int
    """Microseconds until the next try. 0 is now."""
    pending: bool
    created_at: int
    queue_no: int


class HookLetter(msgspec.Struct, frozen=True):
    """A dead letter with its place, which `SettleHook` names."""

    letter: DeadLetter
    mark: int
    number: int


class HookTaken(msgspec.Struct):
    """Letters to report, in their order. `hook` is None if there is no such hook."""

    hook: HookRow | None
    letters: list[HookLetter]


class HookSettled(msgspec.Struct):
    """Whether the owner still held the hook. After a failure: how often it failed, and when it is tried again."""

    held: bool
    failures: int = 0
    retry_in: int = 0
    paused: bool = False


class Place(msgspec.Struct):
    """Progress of a group in a partition, over all its lanes. lag = unread + held.

    `lease` is the newest lease with messages of the partition. `last_done_id` is the message before the first
    unfinished one, in the lane with the newest ack. `last_settled_id` is the message that the group acked or nacked
    last.
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
    """Counts of a partition.

    `pending`, `processing` and `completed` are those of the group with the largest lag in the queue. Processing
    messages are under a lease. Completed ones are stored and neither unfinished nor dead. Without a group all
    messages are pending. `dead` counts the dead letters of every group.
    """

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


class CursorRow(msgspec.Struct, Generic[Instant], frozen=True):
    """Position of a group in one lane."""

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
    ready_at: Instant | None


class LaneRow(msgspec.Struct):
    lane: int
    partition: str
    partition_id: str
    priority: int
    start: int
    head: int
    settled: int | None = None
    """Every group has finished all messages below this seq. Without a group it is the start of the lane."""


class HeldRow(msgspec.Struct):
    """Held messages [lo, hi) of a lane with the same number of failures and attempts."""

    lane: int
    lo: int
    hi: int
    failures: int
    attempt: int

    @property
    def range(self) -> LaneRange:
        return LaneRange(LaneId(self.lane), self.lo, self.hi)


class HeldLease(msgspec.Struct):
    """A live lease with its messages as (lane, priority, lo, hi)."""

    lease_id: str
    key: str | None
    owner: str
    made_at: int
    deadline: int
    held: list[tuple[LaneId, int, int, int]]


class Depth(msgspec.Struct):
    """Waiting messages by priority, live leases (oldest first), and the number of expired leases."""

    queue: str
    waiting: dict[int, int]
    leases: list[HeldLease]
    expired_leases: int


class LeaseRow(msgspec.Struct, Generic[Instant], frozen=True):
    """A lease. It was granted for `granted` messages and holds `held` of them now."""

    lease_id: str
    queue: str
    group: str
    owner: str
    key: str | None
    made_at: Instant
    deadline: Instant
    ended_at: Instant | None
    end_kind: str | None
    granted: int
    held: int


class ConsumerRow(msgspec.Struct, Generic[Instant], frozen=True):
    """An owner of leases in a group. The name "" stands for all claims without an owner.

    `leases` are live and hold `held` messages until `deadline`, the latest of them. `claims` counts the leases that the
    consumer took within the asked time, live or ended.
    """

    queue: str
    group: str
    consumer: str
    leases: int
    held: int
    claims: int
    last_claim_at: Instant
    deadline: Instant | None


class LedgerRow(msgspec.Struct, Generic[Instant, LatencyBound], frozen=True):
    """Count of one outcome in one minute. `latency` maps a bucket's upper bound to its count."""

    queue: str
    group: str
    minute: Instant
    outcome: str
    count: int
    latency: dict[LatencyBound, int]


class Stats(msgspec.Struct, Generic[Instant], frozen=True):
    """Counts of a queue."""

    queue: str
    partitions: int
    lanes: int
    messages: int
    scheduled: int
    dead: int
    groups: list[GroupStats[Instant]]
    oldest_at: Instant | None = None
    """When the oldest stored message was created."""

    @property
    def furthest_behind(self) -> GroupStats[Instant] | None:
        """The group with the largest lag. It decides what is pending in the queue."""
        return max(self.groups, key=lambda group: group.lag, default=None)

    @property
    def pending(self) -> int:
        """Messages that wait for the group furthest behind, including scheduled ones."""
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


class SeekPreview(msgspec.Struct, frozen=True):
    """What a seek does to a group.

    The group gets `again` messages another time that it had finished or skipped. It skips `skipped` messages that it
    had not finished. `leases` lose all their messages in the moved lanes, which are `leased`.
    """

    queue: str
    group: str
    lanes: int
    again: int
    skipped: int
    leased: int
    leases: int
    lag_before: int
    lag_after: int


class GroupPurgePreview(msgspec.Struct, frozen=True):
    """What a purge of its queue does to a group: it skips messages, and of these `leased` are under a lease."""

    group: str
    skipped: int
    leased: int
    leases: int


class PurgePreview(msgspec.Struct, Generic[Instant], frozen=True):
    """What a purge of a queue removes: the messages stored up to `until`. Dead letters stay."""

    queue: str
    until: Instant
    messages: int
    scheduled: int
    dead: int
    groups: list[GroupPurgePreview]

    @property
    def skipped(self) -> int:
        return sum(group.skipped for group in self.groups)


class QueueSummary(msgspec.Struct):
    info: QueueInfo
    stats: Stats


class AvailableRange(msgspec.Struct, frozen=True):
    """Messages [lo, hi) of a lane that a claim of a group could take now."""

    lane: int
    lo: int
    hi: int
    generation: tuple[int, int]
    """Number of the group and epoch of its cursor. A seek begins a new generation: the group reads messages again."""
    due_at: int = 0
    """When returned messages became available. 0: the range is next in the order of the lane."""
    deliveries: int = 0

    @property
    def range(self) -> LaneRange:
        return LaneRange(LaneId(self.lane), self.lo, self.hi)


class AvailablePage(msgspec.Struct):
    """Some available messages. `more`: continue with the same query, from `next` on."""

    ranges: list[AvailableRange]
    next: tuple[int, int, int]
    more: bool = False
    until: int | None = None
    """When the next message of the visited lanes becomes available."""
    returned_next: tuple[int, int, int] | None = None
    """`returned_after` of the next page. None: the next page begins another lane."""


class TraceRow(msgspec.Struct):
    """A note that a consumer attached to a message. `data` is JSON. `number` orders the traces of a store."""

    number: int
    id: str
    event: str
    data: str
    group: str
    worker: str
    created_at: int
    partition_id: str
    transaction_id: str
    partition: str | None
    queue: str | None
    names: list[str] = []


class Timeline(msgspec.Struct):
    """A message, what happened to it group by group, and its first traces."""

    found: FoundMessage
    groups: list[GroupTimeline]
    traces: list[TraceRow]


class TraceName(msgspec.Struct):
    """A name with the numbers of its traces and messages, and the time of its newest trace."""

    name: str
    traces: int
    messages: int
    last_at: int


class TraceNames(msgspec.Struct):
    """A page of names. `total` counts all names."""

    names: list[TraceName]
    total: int


class MaintenanceState(msgspec.Struct):
    """Queen's maintenance switches and the spool. `waiting`: pushes wait in the spool."""

    push: bool
    pop: bool
    waiting: bool
    messages: int = 0
    failed: int = 0
    failed_bytes: int = 0


class PipelineRow(msgspec.Struct, Generic[Instant], frozen=True):
    """A pipeline with its last report, which arrived at `seen_at`."""

    id: str
    queue: str
    group: str
    started_at: Instant
    seen_at: Instant
    report: PipelineReport


class LedgerTotal(msgspec.Struct):
    """Count of one outcome in the time bucket that begins at `bucket`."""

    bucket: int
    outcome: str
    count: int


class LedgerSum(msgspec.Struct):
    """Count of one outcome in a queue."""

    queue: str
    outcome: str
    count: int


class NewestMessages(msgspec.Struct):
    """Messages, newest first. `cut`: the search ended at its bound, so older messages may be missing."""

    messages: list[FoundMessage]
    cut: bool = False
