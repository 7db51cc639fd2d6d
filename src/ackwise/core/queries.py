"""Queries: every read as a value."""

from __future__ import annotations

from functools import cache
from typing import ClassVar, Generic, Literal

import msgspec

from ackwise.core import rows, validation
from ackwise.core.answers import QueueInfo
from ackwise.core.error_kinds import LONGEST_KIND
from ackwise.core.errors import BadInput
from ackwise.core.filter_parser import parse_filter
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.structs import Answer_co

_NAMES = ("queue", "group", "partition", "partition_id", "namespace", "task", "reason", "instance", "key_prefix")
_INSTANTS = ("after_at", "before_at", "unfinished_since")


class Query(msgspec.Struct, Generic[Answer_co], kw_only=True, forbid_unknown_fields=True):
    """Base of all queries: `Query[Rows]`. On the wire the field `type` carries the query's tag."""

    LARGEST_LIMIT: ClassVar[int] = 1 << 31
    """The largest `limit` that the query accepts."""

    def check(self) -> None:
        """Raise `BadInput` for names and numbers that no store can hold."""
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if value is None and field not in _required_fields(type(self)):
                continue
            if field in _NAMES:
                validation.name(value, field)
            elif field in _INSTANTS:
                validation.instant(value, field)
            elif field == "transaction_id":
                validation.transaction_id(value)
            elif field == "kind":
                validation.storable(validation.at_most(value, field, LONGEST_KIND), field)
            elif field == "limit":
                validation.count(value, field, least=0, most=self.LARGEST_LIMIT)
            elif field == "offset":
                validation.count(value, field, least=0, most=1 << 31)
            elif field == "after":
                _check_after(value)


def _check_range(after_at: int, before_at: int) -> None:
    if before_at <= after_at:
        raise BadInput("before_at must be later than after_at")


@cache
def _required_fields(kind: type[Query]) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(kind) if field.required)


def _check_after(after: str | int | tuple[str | int, ...]) -> None:
    for part in after if isinstance(after, tuple) else (after,):
        if isinstance(part, str):
            validation.storable(part, "after")
        else:
            validation.count(part, "after", least=-1, most=1 << 61)


class ListQueues(Query[list[QueueInfo]], tag="list_queues"):
    """Queues by name, after the name `after`. With `noted` only queues with notes of a protocol."""

    namespace: str | None = None
    task: str | None = None
    noted: bool = False
    after: str = ""
    limit: int | None = None


class GetQueue(Query[QueueInfo], tag="get_queue"):
    queue: str


class Browse(Query[list[rows.BrowsedMessage]], tag="browse"):
    """Messages by lane and seq, with their state for `group` if you name one.

    A page also ends at `validation.ANSWER_BYTES` and at `validation.MOST_ROWS`. Only an empty page is the end.
    """

    queue: str
    partition: str | None = None
    group: str | None = None
    after: tuple[int, int] | None = None
    limit: int = 100


class BrowseNewest(Query[rows.NewestPage], tag="browse_newest"):
    """Messages of a queue that match all filters, newest first by the instant at which they were stored.

    `state` is the state of the messages for `group`, as `Browse` names it. The state `scheduled` needs no group and
    finds delayed messages, which no other search finds. `after_at` and `before_at` bound the instant, inclusive.
    `headers` must be equal. `filter` is a condition over the JSON payload: `/order/total > 5 AND /region IN ('eu')`. It
    takes no message for which it would be too costly. `transaction_text` is a part of the transaction id.

    One call compares a bounded number of messages, bytes and lanes. `after` is the `next` of the previous page.
    """

    LARGEST_LIMIT: ClassVar[int] = 1000
    STATES: ClassVar[tuple[str, ...]] = (
        *("ready", "leased", "waiting", "acked", "dead", "dropped", "skipped"),
        "scheduled",
    )
    MOST_HEADERS: ClassVar[int] = 10

    queue: str
    partition: str | None = None
    group: str | None = None
    state: str | None = None
    after_at: int | None = None
    before_at: int | None = None
    headers: dict[str, str] = {}
    filter: str | None = None
    transaction_text: str | None = None
    after: tuple[int, int, int] | None = None
    limit: int = 100

    def check(self) -> None:
        super().check()
        if self.state is not None:
            validation.one_of(self.state, "state", self.STATES)
            if self.group is None and self.state != "scheduled":
                raise BadInput("a state is the state for a group; name the group")
        if self.transaction_text is not None:
            validation.transaction_id(self.transaction_text)
        if self.filter is not None:
            parse_filter(self.filter)
        if len(self.headers) > self.MOST_HEADERS:
            raise BadInput(f"headers has {len(self.headers)} entries; at most {self.MOST_HEADERS} are allowed")
        for text in (*self.headers, *self.headers.values()):
            validation.at_most(text, "headers", validation.MAX_HEADERS_BYTES)


class FindMessage(Query[rows.FoundMessage], tag="find_message"):
    """One message by its partition's uuid and its transaction id. It is stored, scheduled, or only a dead letter.

    The query scans the partition for a message that is older than every dedupe window. `near` is the lane and the seq
    at which you saw the message before: the query looks there first, and never scans.
    """

    partition_id: str
    transaction_id: str
    near: tuple[int, int] | None = None

    def check(self) -> None:
        super().check()
        for number in self.near or ():
            validation.count(number, "near", least=0, most=1 << 61)


class MessageTimeline(Query[rows.Timeline], tag="message_timeline"):
    """Everything that is known of one message: named by partition and transaction id, or by lane and seq."""

    partition_id: str | None = None
    transaction_id: str | None = None
    lane: int | None = None
    seq: int | None = None

    def check(self) -> None:
        super().check()
        named, placed = (self.partition_id, self.transaction_id), (self.lane, self.seq)
        if (None in named) == (None in placed) or named.count(None) == 1 or placed.count(None) == 1:
            raise BadInput("name a message by partition_id and transaction_id, or by lane and seq")
        for number in placed:
            if number is not None:
                validation.count(number, "lane and seq", least=0, most=1 << 62)


class ListDead(Query[rows.DeadPage], tag="list_dead"):
    """Dead letters, newest first. `before_at` and `after_at` bound `dead_at`, inclusive.

    `kind` is the error with its variable parts replaced, as `ListDeadKinds` returns it. `after` is the `next` of the
    previous page. A page also ends at `validation.ANSWER_BYTES` and at `validation.MOST_ROWS`.
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
    kind: str | None = None


class CountDead(Query[int], tag="count_dead"):
    """How many dead letters match. The fields have the meaning of those of `ListDead`."""

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    reason: str | None = None
    kind: str | None = None
    after_at: int | None = None
    before_at: int | None = None


class CountDeadByTime(Query[rows.TimeSeries], tag="count_dead_by_time"):
    """Dead letters by reason in equal time buckets from `after_at` to `before_at`, exclusive."""

    MOST_BUCKETS: ClassVar[int] = 400

    after_at: int
    before_at: int
    buckets: int = 60
    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    reason: str | None = None
    kind: str | None = None

    def check(self) -> None:
        super().check()
        validation.count(self.buckets, "buckets", most=self.MOST_BUCKETS)
        _check_range(self.after_at, self.before_at)


class ListDeadKinds(Query[list[rows.DeadKind]], tag="list_dead_kinds"):
    """Dead letters counted by queue and kind of error, the most frequent kind first.

    `before_at` and `after_at` bound `dead_at`, inclusive. `after` is the count, the queue and the kind of the previous
    page's last row.
    """

    LARGEST_LIMIT: ClassVar[int] = 1000

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    reason: str | None = None
    after_at: int | None = None
    before_at: int | None = None
    after: tuple[int, str, str] | None = None
    limit: int = 100


class GetGroup(Query[rows.GroupDetails], tag="get_group"):
    """One group of a queue, with its policy and its version."""

    queue: str
    group: str


class ListHooks(Query[list[rows.HookRow]], tag="list_hooks"):
    """Hooks of dead letters, of one queue or of all. `after` is the `place` of the previous page's last row."""

    queue: str | None = None
    after: tuple[int, str] | None = None
    limit: int = 1000


class ListGroups(Query[list[rows.GroupStats]], tag="list_groups"):
    """Groups by queue and name. `after` is the queue and the group of the previous page's last row."""

    queue: str | None = None
    group: str | None = None
    after: tuple[str, str] | None = None
    limit: int | None = None


class ListCursors(Query[list[rows.CursorRow]], tag="list_cursors"):
    """The cursors of a group, one per lane."""

    queue: str
    group: str


class ListPlaces(Query[list[rows.Place]], tag="list_places"):
    """Progress of groups, one row per queue, group and partition.

    `unfinished_since` keeps only rows with an older unfinished message. `last_done` adds the last finished message.
    """

    group: str | None = None
    queue: str | None = None
    unfinished_since: int | None = None
    last_done: bool = False
    after: tuple[str, str, str] | None = None
    """The queue, the group and the partition of the previous page's last row."""
    limit: int | None = None


class ListGroupNames(Query[list[str]], tag="list_group_names"):
    """Names of the groups of all queues, each once."""

    after: str = ""
    limit: int = 1000


class ListPartitions(Query[list[rows.PartitionRow]], tag="list_partitions"):
    """Counts per partition, of one queue or of all. `after` is the queue and the partition of the previous row."""

    queue: str | None = None
    after: tuple[str, str] | None = None
    limit: int | None = None


class ListLanes(Query[list[rows.LaneRow]], tag="list_lanes"):
    """The lanes of a queue, each with its messages [start, head). `settled` adds how far all groups are done."""

    queue: str
    settled: bool = False


class ListLeases(Query[list[rows.LeaseRow]], tag="list_leases"):
    """Leases, newest first. `key_prefix` selects leases by the start of their claim keys.

    A lease past its deadline counts as live until a turn ends it. Compare its `deadline`.
    """

    queue: str | None = None
    group: str | None = None
    instance: str | None = None
    key_prefix: str | None = None
    live_only: bool = True
    after: str | None = None
    """The id of the previous page's last lease."""
    limit: int = 1000


class GetLease(Query[rows.LeaseRow], tag="get_lease"):
    """One lease by its id, live or ended."""

    lease_id: str


class ListOldestLeases(Query[list[rows.LeaseRow]], tag="list_oldest_leases"):
    """Live leases, oldest first by `made_at`. A lease at or past its deadline is not live."""

    LARGEST_LIMIT: ClassVar[int] = 1000

    queue: str | None = None
    after: tuple[int, str] | None = None
    """The `made_at` and the id of the previous page's last lease."""
    limit: int = 10


class ListConsumers(Query[list[rows.ConsumerRow]], tag="list_consumers"):
    """Consumers by queue, group and name: owners of live leases, and of claims in the last `recent` microseconds.

    Claims without an owner are one consumer with the name "". Claims with `auto_ack` have no lease and are not listed.
    `after` is the queue, the group and the name of the previous page's last row.
    """

    LARGEST_LIMIT: ClassVar[int] = 10_000
    LONGEST_RECENT: ClassVar[int] = 3_600_000_000

    queue: str | None = None
    group: str | None = None
    recent: int = 60_000_000
    after: tuple[str, str, str] | None = None
    limit: int = 1000

    def check(self) -> None:
        super().check()
        validation.count(self.recent, "recent", least=0, most=self.LONGEST_RECENT)


class ListHeld(Query[list[rows.HeldRow]], tag="list_held"):
    """Messages that a live lease holds, by lane and seq. Empty if the lease ended, expired or is unknown."""

    lease_id: str


class ListDepths(Query[list[rows.Depth]], tag="list_depths"):
    """Waiting messages of a group by priority, and its live leases, for one queue or for all queues by name.

    Messages of an expired lease count as waiting, also before a sweep. For a group that does not exist all messages
    wait. `after` and `limit` select a page of queues.
    """

    queue: str | None = None
    group: str = QUEUE_MODE
    after: str = ""
    limit: int | None = None


class IsHeld(Query[bool], tag="is_held"):
    """Whether a live lease of a group holds messages of a queue."""

    queue: str
    group: str = QUEUE_MODE


class ReadLedger(Query[list[rows.LedgerRow]], tag="read_ledger"):
    """Ledger minutes, oldest first. `after` is the minute, queue, group and outcome of the previous page's last row."""

    queue: str | None = None
    group: str | None = None
    after_at: int | None = None
    before_at: int | None = None
    after: tuple[int, str, str, str] | None = None
    limit: int | None = None


class LedgerSeries(Query[rows.TimeSeries], tag="ledger_series"):
    """Counts of the ledger by outcome in equal time buckets, of one queue or of all.

    The ledger counts whole minutes, so the buckets are whole minutes: from the minute of `after_at` to that of
    `before_at`. The outcome `pushed` has no group. There are at most `buckets` buckets.
    """

    MOST_BUCKETS: ClassVar[int] = 400

    after_at: int
    before_at: int
    buckets: int = 60
    queue: str | None = None
    group: str | None = None

    def check(self) -> None:
        super().check()
        validation.count(self.buckets, "buckets", most=self.MOST_BUCKETS)
        _check_range(self.after_at, self.before_at)


class ListPipelines(Query[list[rows.PipelineRow]], tag="list_pipelines"):
    """Pipelines that reported in the last days, by id, behind the id `after`."""

    LARGEST_LIMIT: ClassVar[int] = 1000

    queue: str | None = None
    group: str | None = None
    after: str = ""
    limit: int = 100


class QueueStats(Query[rows.Stats], tag="queue_stats"):
    queue: str


class PreviewPurge(Query[rows.PurgePreview], tag="preview_purge"):
    """What a purge of a queue would remove now. A purge with the preview's `until` removes no later message."""

    queue: str


class PreviewSeek(Query[rows.SeekPreview], tag="preview_seek"):
    """What a seek of a group would do now. The fields have the meaning of those of `SeekGroup`."""

    queue: str
    group: str
    to: Literal["start", "end"] | int
    partition: str | None = None
    by: Literal["time", "seq"] = "time"

    def check(self) -> None:
        super().check()
        validation.seek(self.to, self.by, self.partition)


class StoreSize(Query[int], tag="store_size"):
    """Bytes of the database on disk."""


class ListStats(Query[list[rows.QueueSummary]], tag="list_stats"):
    """Counts of queues by name, after the name `after`."""

    namespace: str | None = None
    task: str | None = None
    after: str = ""
    limit: int | None = None


class ListAvailable(Query[rows.AvailablePage], tag="list_available"):
    """Messages that a claim of a group could take now, up to `limit`. Nothing is delivered.

    For each lane the answer has the returned messages, and the messages behind the place of `seen` in the order of the
    lane. `seen` has the generation and the seq up to which you know a lane.
    """

    LARGEST_LIMIT: ClassVar[int] = 10_000

    queue: str
    group: str = QUEUE_MODE
    seen: dict[int, tuple[int, int, int]] = {}
    after: tuple[int, int, int] = (-1, -1, -1)
    """Priority, instant and number of the lane behind which the page starts."""
    returned_after: tuple[int, int, int] | None = None
    """Lane, instant and seq behind which the returned messages of that lane continue, the newest first."""
    limit: int = 1000
