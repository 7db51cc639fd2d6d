"""Commands: every write as a value. A store applies the commands of a turn in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from ackwise.core import validation
from ackwise.core.answers import (
    Claimed,
    ClaimProgress,
    Counted,
    Extended,
    Maintenance,
    PurgedQueue,
    PurgePlace,
    QueueInfo,
    QueuePurgePlace,
    Receipts,
    Redriven,
    Settled,
    Swept,
    TraceAdded,
    TransactionDone,
)
from ackwise.core.hooks import WEBHOOK
from ackwise.core.lane_range import LaneRange
from ackwise.core.messages import QUEUE_MODE, NewMessage, PlainBatch
from ackwise.core.pipelines import PipelineReport
from ackwise.core.policy import Exclusivity, GroupPolicy, Order, QueuePolicy
from ackwise.core.rows import HookRow, HookSettled, HookTaken
from ackwise.core.settlement import Outcome
from ackwise.core.structs import Answer_co

A = TypeVar("A")
Version = str | msgspec.UnsetType
"""Version that the stored object must have: `versions.ANY` for any version, unset if the object need not exist."""


class Command(msgspec.Struct, Generic[Answer_co], kw_only=True, forbid_unknown_fields=True):
    """Base of all commands: `Command[Answer]`. On the wire the field `type` carries the command's tag."""


class AdminCommand(Command[Answer_co]):
    """Base of the commands that `POST /v1/admin` accepts."""


class Push(Command[Receipts], tag="push"):
    """Append messages. `create` is the policy for a new queue. None refuses a queue that does not exist."""

    queue: str
    messages: list[NewMessage] | PlainBatch
    create: QueuePolicy | None = QueuePolicy()


class Claim(Command[Claimed], tag="claim"):
    """Claim up to `most` messages under one lease. With `auto_ack` the messages are acked at once, without a lease."""

    queue: str | None = None
    namespace: str | None = None
    task: str | None = None
    group: str = QUEUE_MODE
    partitions: tuple[str, ...] | None = None
    priorities: tuple[int, ...] | None = None
    most: int = 1
    most_bytes: int | None = None
    """Payload bytes at which the claim stops. None means 16 MiB. The claim takes at least one message."""
    together: int = 0
    """Claims of one turn with the same number share `most_bytes`. 0 shares nothing."""
    most_partitions: int | None = None
    lease: int | None = None
    exclusivity: Exclusivity | None = None
    order: Order | None = None
    owner: str | None = None
    key: str | None = None
    takes_over: bool = True
    """Whether the claim takes over the messages that its key already holds. A claim that waited does not, because a
    newer call with the same key may hold them by now."""
    auto_ack: bool = False
    bulk: bool = False
    yields: bool = False
    """A failure releases the messages that the lease still holds in the same partition. They cost no failure."""
    pushed_by: int | None = None
    """Skip messages stored after this instant, unless they were delivered before."""
    start: Literal["all", "new"] | int = "all"
    create: QueuePolicy | None = None
    progress: ClaimProgress | None = None
    """Where a claim by namespace or task continues that an earlier turn began."""
    only: tuple[LaneRange, ...] | None = None
    """Named messages: the claim takes those of them that are available, and no others. The claim bypasses the unread
    messages before them, which stay available. None names nothing: the claim takes any message."""


def copies_of(claim: Claim, count: int) -> list[Claim]:
    """`count` copies of a claim. Copies of a claim with a key have the keys `key/0`, `key/1` ..."""
    if claim.key is None:
        return [claim] * count
    return [msgspec.structs.replace(claim, key=f"{claim.key}/{number}") for number in range(count)]


def share_bytes(claims: Iterable[Claim], number: int) -> list[Claim]:
    """Copies of claims that share one byte budget in their turn. `number` identifies the budget."""
    return [msgspec.structs.replace(claim, together=number) for claim in claims]


class ByDelivery(msgspec.Struct, frozen=True, tag="delivery"):
    """Selects one delivery of one message."""

    delivery_id: str


class ByTransaction(msgspec.Struct, frozen=True, tag="transaction"):
    """Selects a message by its partition's uuid and its transaction id, under any lease unless `lease_id` names one."""

    partition_id: str
    transaction_id: str
    group: str | None = None
    lease_id: str | None = None
    unheld: bool = False
    """Without `lease_id`: also settle a delivered message that no lease holds now."""
    fenced: bool = False
    """With `lease_id`: a message that this lease failed or released before is `stale` instead of `already`."""


class ByRange(msgspec.Struct, frozen=True, tag="range"):
    """Selects messages [lo, hi) of one lane of a lease. `whole` refuses the range unless the lease holds all of it."""

    lease_id: str
    lane: int
    lo: int
    hi: int
    whole: bool = False


class ByLease(msgspec.Struct, frozen=True, tag="lease"):
    """Selects all messages that a lease still holds."""

    lease_id: str


class ByKey(msgspec.Struct, frozen=True, tag="key"):
    """Selects all messages that the claim with this key still holds."""

    queue: str
    key: str
    group: str = QUEUE_MODE


Selector = ByDelivery | ByTransaction | ByRange | ByLease | ByKey


class Settlement(msgspec.Struct, kw_only=True):
    """One entry of a settle call."""

    selector: Selector
    outcome: Outcome
    delay: int | None = None
    error: str | None = None
    error_type: str | None = None
    trace: str | None = None
    """The innermost lines of the traceback. The history keeps only the newest trace."""
    undecodable: bool = False
    """With `reject`: the payload could not be decoded."""


class Settle(Command[list[Settled]], tag="settle"):
    """Settle deliveries, each on its own or, with `atomic`, all or none.

    With `strict`, an ack of a message that ended without an ack also undoes an atomic call.
    """

    entries: list[Settlement]
    atomic: bool = False
    strict: bool = False


def release_command(lease_ids: Iterable[str]) -> Settle:
    """The command that releases all messages of these leases, without a failure."""
    return Settle(entries=[Settlement(selector=ByLease(lease_id), outcome=Outcome.RELEASE) for lease_id in lease_ids])


class Break(Command[Counted], tag="break"):
    """End leases whose connection is lost. Each message counts a failure, as if the lease had expired."""

    lease_ids: list[str]


class Extend(Command[Extended], tag="extend"):
    """Set a lease's deadline to now + `lease`, or move it by `add`. Never revives an expired lease.

    `keep_later` keeps a deadline that is already later. `claim` names the lease by its claim key instead of its id.
    """

    lease_id: str = ""
    claim: ByKey | None = None
    lease: int | None = None
    add: int | None = None
    keep_later: bool = False


class Transaction(Command[TransactionDone], tag="transaction"):
    """Settlements and pushes in one step: all or none."""

    settlements: list[Settlement] = []
    pushes: list[Push] = []
    required_leases: tuple[str, ...] = ()
    on_duplicate: Literal["ok", "fail"] = "ok"
    on_already: Literal["ok", "acks", "fail"] = "ok"
    """Effect of an `already` settlement. `ok`: the call is a repetition and continues. `acks`: only an ack continues,
    any other outcome rolls back. `fail`: the call rolls back. An ack of a message that ended without an ack rolls back,
    except with `acks`."""
    repeatable: bool = False
    """Whether a call whose settlements and pushes are all done already succeeds, as a repetition."""


class ConfigureQueue(AdminCommand[QueueInfo], tag="configure_queue"):
    """Create or change a queue.

    `policy` changes fields of the stored policy. For a new queue, and with `replace`, it changes fields of `create`.
    A `partition` is created as well.
    """

    queue: str
    policy: dict[str, Any] = {}
    create: QueuePolicy = QueuePolicy()
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    replace: bool = False
    must_be_new: bool = False
    version: Version = msgspec.UNSET


class DeleteQueue(AdminCommand[Counted], tag="delete_queue"):
    queue: str
    version: Version = msgspec.UNSET


class PauseQueue(AdminCommand[QueueInfo], tag="pause_queue"):
    """Stop or resume deliveries of a queue. Pushes continue."""

    queue: str
    paused: bool = True
    version: Version = msgspec.UNSET


class ConfigureGroup(AdminCommand[Counted], tag="configure_group"):
    """Create a group at a start (`all`, `new` or an instant), or change its policy.

    `restart` also changes the stored start of an existing group. It moves no cursor. A later reset uses it. The answer
    counts 1.
    """

    queue: str
    group: str
    start: Literal["all", "new"] | int = "all"
    policy: GroupPolicy | None = None
    restart: bool = False
    must_be_new: bool | msgspec.UnsetType = msgspec.UNSET
    version: Version = msgspec.UNSET


class SeekGroup(AdminCommand[Counted], tag="seek_group"):
    """Move a group to the `start`, the `end`, an instant or, in one partition, a seq. Starts a new epoch.

    All lanes move in one turn, so that no claim sees the group at two positions. The turn takes about 30 microseconds
    for each lane, and other commands wait for it.
    """

    queue: str
    group: str
    to: Literal["start", "end"] | int
    partition: str | None = None
    by: Literal["time", "seq"] = "time"
    version: Version = msgspec.UNSET


class AdvanceGroup(AdminCommand[Counted], tag="advance_group"):
    """Ack, per lane, all unread messages below a seq, for a reader that does not claim.

    A cursor never moves back. Delivered messages keep their state. A new group starts at `all`.
    """

    queue: str
    group: str
    lanes: dict[int, int]


class PruneQueue(AdminCommand[Counted], tag="prune_queue"):
    """Remove, per lane, messages below a seq that every group has finished, after an archive has stored them.

    Removes whole segments, a bounded number per call. Repeat the call to continue. The answer counts messages.
    """

    queue: str
    lanes: dict[int, int]


class PurgeQueue(AdminCommand[PurgedQueue], tag="purge_queue"):
    """Remove all messages of a queue that were stored up to the instant `until`. Without `until` it is now.

    Every group skips the messages that it has not finished, and leases lose them: a late settlement is `stale`.
    Scheduled messages are removed as well. Dead letters stay, and transaction ids of removed messages stay duplicates.
    Groups keep their place behind `until`, so later messages are delivered.

    One turn removes a bounded number of rows. A broker continues the purge in later turns, and the last answer counts
    all. With `one_turn` the answer comes after one turn: continue with its `more` as `behind`, until there is none.
    """

    queue: str
    until: int | None = None
    behind: QueuePurgePlace | None = None
    one_turn: bool = False


class DeleteGroup(AdminCommand[Counted], tag="delete_group"):
    """Delete a group with its cursors and leases, in one turn. The answer counts lanes."""

    queue: str
    group: str
    version: Version = msgspec.UNSET


class Redrive(AdminCommand[Redriven], tag="redrive"):
    """Return dead letters to their group at their old position."""

    ids: list[str]


class Replay(AdminCommand[Redriven], tag="replay"):
    """Push a copy of each dead letter, to `queue` and `partition` or to its origin, and remove the dead letter."""

    ids: list[str]
    queue: str | None = None
    partition: str | None = None


class PurgeDead(AdminCommand[Counted], tag="purge_dead"):
    """Remove dead letters: the named ones, or all that match.

    One turn reads a bounded number of letters. A broker continues the purge in later turns. The last answer counts all.
    If a turn fails, the letters of the earlier turns stay removed. Repeat the command to remove the others.
    """

    ids: list[str] | None = None
    queue: str | None = None
    group: str | None = None
    behind: PurgePlace | None = None
    """Where a purge continues that an earlier turn began."""


class AddTrace(Command[TraceAdded], tag="add_trace"):
    """Attach a note to a message. `lane` and `seq` are its place, if it is stored: its retention removes the note."""

    partition_id: str
    transaction_id: str
    data: str
    """JSON."""
    names: list[str] = []
    group: str = QUEUE_MODE
    event: str = "info"
    worker: str = ""
    lane: int | None = None
    seq: int | None = None


class SetMaintenance(Command[Maintenance], tag="set_maintenance"):
    """Turn Queen's maintenance switches on or off. None keeps a switch."""

    push: bool | None = None
    pop: bool | None = None


class Spool(Command[Counted], tag="spool"):
    """Keep pushes until the push maintenance ends. The answer counts 0 if there is none: nothing was kept."""

    pushes: list[Push]

    @property
    def queue(self) -> str:
        """The queue that chooses the shard."""
        return self.pushes[0].queue if self.pushes else ""


class DrainSpool(Command[Swept], tag="drain_spool"):
    """Push the oldest kept pushes, after the maintenance ended. Each call does a bounded amount."""


class SetHook(AdminCommand[HookRow], tag="set_hook"):
    """Create a hook of a queue's dead letters, or change it. A new hook reports letters from now on.

    With a `url` a server posts each letter to the URL. Without one, the process that takes the hook reports them. If
    you set a paused hook again, it resumes at its place.
    """

    queue: str
    name: str = WEBHOOK
    url: str | None = None
    include_payload: bool = False


class RemoveHook(AdminCommand[Counted], tag="remove_hook"):
    """Delete a hook with its place. The answer counts hooks."""

    queue: str
    name: str = WEBHOOK


class TakeHook(AdminCommand[HookTaken], tag="take_hook"):
    """Take a hook for `lease` microseconds and read the letters behind its place. One owner holds a hook at a time.

    The answer has no letters if none are left, if the hook waits for its next try, or if another owner holds it. An
    owner that finds none left gives the hook back.
    """

    queue: str
    name: str
    owner: str
    lease: int = 60 * validation.MICROS
    limit: int = 16


class SettleHook(AdminCommand[HookSettled], tag="settle_hook"):
    """Move a taken hook behind a reported letter. With an `error` the letter is tried again later."""

    queue: str
    name: str
    owner: str
    mark: int
    letter: int
    error: str | None = None
    lease: int = 60 * validation.MICROS


class ReportPipeline(AdminCommand[Counted], tag="report_pipeline"):
    """Record the newest report of a pipeline. The answer counts 1.

    Send a report with each batch, or every few seconds. `id` names one run of a pipeline: a report with a known id
    replaces the older one. The store forgets a pipeline seven days after its last report.
    """

    id: str
    queue: str
    group: str
    report: PipelineReport


LONG_COMMANDS = frozenset((Claim, PurgeDead, PurgeQueue))
"""Commands that may need several turns."""


def next_command(command: Command[A], answer: A) -> Command[A] | None:
    """The command that continues what a turn left undone. None if the answer is complete."""
    if isinstance(answer, Claimed) and answer.more is not None and isinstance(command, Claim):
        # An earlier turn looked for the claim's key in vain. A newer call with the key may hold messages by now.
        return cast("Command[A]", msgspec.structs.replace(command, progress=answer.more, takes_over=False))
    if isinstance(answer, Counted) and answer.more is not None and isinstance(command, PurgeDead):
        return cast("Command[A]", msgspec.structs.replace(command, behind=answer.more))
    if isinstance(answer, PurgedQueue) and answer.more is not None and isinstance(command, PurgeQueue):
        return None if command.one_turn else cast("Command[A]", msgspec.structs.replace(command, behind=answer.more))
    return None


class Sweep(Command[Swept], tag="sweep"):
    """Run time-driven duties. Each call does a bounded amount and answers whether more is left."""

    duties: tuple[str, ...] = ("expire", "promote", "max_wait", "retain", "forget", "purge")
    limit: int = 1000


class Beat(Command[Counted], tag="beat"):
    """Heartbeat of a broker. Ends the leases of connections to dead brokers."""

    instance: str
