"""Answers to commands: receipts, claims, settlements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, overload

import msgspec

from ackwise.core import ids
from ackwise.core.ids import LaneId
from ackwise.core.lane_range import LaneRange
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.messages import Message, Receipt
from ackwise.core.settlement import Reason, Verdict
from ackwise.core.structs import Instant, prepare_types

if TYPE_CHECKING:
    from ackwise.core.commands import Claim


Result = object
"""What a turn returns for a command: the answer that the command names, or the `AckwiseError` that refuses it.

The commands of a turn name several types. `Submission.answers` of a broker gives each caller the type of its commands.
"""


class Placed(msgspec.Struct, frozen=True):
    """One pushed message. `Receipts` turns it into a `Receipt`."""

    status: str
    id_int: int
    txid: str
    partition: str
    partition_id: str
    seq: int | None


class PlacedRun(msgspec.Struct, frozen=True):
    """Pushed messages with consecutive ids and seqs, stored as one object."""

    first: int
    """Id of the first message."""
    txids: list[str]
    """The list may grow beyond `count`: messages of other callers join the same segment."""
    count: int
    partition: str
    partition_id: str
    seq: int
    """Seq of the first message."""

    def columns(self) -> tuple[list[str], list[str]]:
        """(message ids, transaction ids) as text."""
        spelled = ids.uuid_texts(self.first, self.count)
        return spelled, [txid or own for txid, own in zip(self.txids, spelled, strict=False)]

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Placed]:
        return map(self.__getitem__, range(self.count))

    @overload
    def __getitem__(self, index: int) -> Placed: ...
    @overload
    def __getitem__(self, index: slice) -> list[Placed]: ...
    def __getitem__(self, index: int | slice) -> Placed | list[Placed]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.count))]
        at = range(self.count)[index]
        return Placed("queued", self.first + at, self.txids[at], self.partition, self.partition_id, self.seq + at)


class Receipts(Sequence[Receipt]):
    """Receipts of a push in the order of its messages. Builds each receipt on access."""

    def __init__(self, placed: Sequence[Placed] | PlacedRun) -> None:
        self._placed = placed
        self.run = placed if isinstance(placed, PlacedRun) else None
        """All messages as one run, if they have consecutive ids and seqs."""

    def __len__(self) -> int:
        return len(self._placed)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [_receipt(p) for p in self._placed[index]]
        return _receipt(self._placed[index])

    def __iter__(self) -> Iterator[Receipt]:
        return map(_receipt, self._placed)

    def __repr__(self) -> str:
        return f"Receipts({list(self)!r})"


def _receipt(p: Placed) -> Receipt:
    message_id = ids.uuid_text(p.id_int)
    return Receipt(p.status, message_id, p.txid or message_id, p.partition, p.partition_id, p.seq)


class Grant(msgspec.Struct, frozen=True):
    """Messages [lo, hi) of one lane with the same number of failures and attempts."""

    queue: str
    partition: str
    partition_id: str
    lane: LaneId
    priority: int
    lo: int
    hi: int
    failures: int
    attempt: int

    @property
    def range(self) -> LaneRange:
        return LaneRange(self.lane, self.lo, self.hi)


class ClaimProgress(msgspec.Struct, frozen=True):
    """How far a claim by namespace or task has come. The claim continues there in a later turn."""

    since: int
    """Instant of the claim's first turn. A group that starts at `new` starts there in every queue."""
    joined: str | None = ""
    """The claim has looked for its group in the queues up to this name. None: in all queues."""
    visited: str = ""
    """The claim has visited the queues up to this name after the group had joined all queues."""
    empty: EmptyReason = EmptyReason.EMPTY
    until: int | None = None


class Claimed(msgspec.Struct):
    """Answer to a claim. Without grants, `empty` says why and `until` when to claim again."""

    group: str
    grants: list[Grant]
    lease_no: int = 0
    tag: int = 0
    deadline: int = 0
    empty: EmptyReason | None = None
    until: int | None = None
    prefetched: Any = None
    """Segments of a claim with auto-ack. The turn reads them, because retention may remove them after the commit."""
    size: int = 0
    """Upper bound of the bytes of the messages."""
    more: ClaimProgress | None = None
    """The turn ended before the claim was complete. Continue the claim with `core.commands.next_command`."""
    gone: list[LaneRange] = []
    """Of the messages that the claim names in `only`: those that are finished, leased or wait for their retry."""

    @property
    def lease_id(self) -> str:
        return ids.lease_id(self.lease_no, self.tag) if self.lease_no else ""

    @property
    def count(self) -> int:
        return sum(g.hi - g.lo for g in self.grants)

    @property
    def ranges(self) -> list[LaneRange]:
        """The range of each grant."""
        return [grant.range for grant in self.grants]


class Settled(msgspec.Struct, omit_defaults=True):
    """Answer to one settlement. `count` is the number of settled messages.

    `lease_ended` says that the lease ended in the same call or, if the verdict is `already`, in this or an earlier
    call. If a range or a lease fails, some messages may die and others return. The verdict is `dead` only if all of
    them died. `dead` without a reason means that the queue dropped the messages: it keeps no dead letters.
    """

    verdict: Verdict
    count: int = 0
    lease_ended: bool = False
    reason: Reason | None = None
    dead: int = 0
    failures: int = 0
    """Failures of the last settled message, as the retry limit counts them."""
    dead_ids: list[str] = []
    """Ids of the first dead letters of this settlement."""
    unacked: bool = False
    """For an `already` ack: a message did not end in an ack. It is delivered again, or dead."""
    lease_id: str | None = None
    """The lease that ended, if the settlement named a transaction id."""
    retry_in: int | None = None
    """After a retry: microseconds until the message is claimable again."""
    last_failure: int | None = None
    """After a retry: the number of the failure that is final. None without a limit."""


class Extended(msgspec.Struct):
    """Answer to an extension: the new deadline. None if the lease ended. `verdict` says how."""

    verdict: Verdict | None
    deadline: int | None
    by_settling: bool = False
    """Whether settlements ended the lease, and it lost no message before."""


class TransactionDone(msgspec.Struct):
    settled: list[Settled]
    pushed: list[Receipts]


class QueueInfo(msgspec.Struct, Generic[Instant], frozen=True):
    """A queue and its settings. `created` says that the command created the queue."""

    name: str
    id: int
    namespace: str
    task: str
    policy: dict[str, object]
    paused: bool
    created_at: Instant
    created: bool = False
    partition_id: str | None = None


class PurgePlace(msgspec.Struct, frozen=True):
    """Place of the last dead letter that a purge has read. The purge continues after it in a later turn."""

    until: int
    """Instant of the purge's first turn. The purge removes no letter that died later."""
    dead_at: int = 0
    id: int = 0
    count: int = 0
    """Letters that the earlier turns removed."""


class QueuePurgePlace(msgspec.Struct, frozen=True):
    """Where the purge of a queue continues in a later turn, and what the earlier turns removed."""

    until: int
    """The purge removes no message that was stored later."""
    lane: int = 0
    messages: int = 0
    scheduled: int = 0
    skipped: int = 0


class PurgedQueue(msgspec.Struct, omit_defaults=True):
    """Answer to a purge: the stored and the scheduled messages that it removed.

    `skipped` counts, over all groups, the removed messages that the group had not finished.
    """

    messages: int
    scheduled: int
    skipped: int
    more: QueuePurgePlace | None = None
    """The turn ended before the purge was complete. Continue the purge with `core.commands.next_command`."""


class Counted(msgspec.Struct, omit_defaults=True):
    """How many rows or messages a command touched."""

    count: int
    more: PurgePlace | None = None
    """The turn ended before the purge was complete. Continue the purge with `core.commands.next_command`."""
    queue: str = ""
    """Queue of the first dead letter that a purge by ids removed."""


class Redriven(msgspec.Struct):
    """Result per dead letter: `redriven`, `replayed`, `duplicate`, `not_found` or an error code. Also the copies."""

    results: dict[str, str]
    copies: dict[str, Receipt] = {}
    queue: str = ""
    """Queue of the first letter. Empty if there is none."""

    @property
    def count(self) -> int:
        return sum(1 for result in self.results.values() if result in ("redriven", "replayed"))


class TraceAdded(msgspec.Struct):
    """The id of a new trace."""

    trace_id: str


class Maintenance(msgspec.Struct):
    """Queen's maintenance switches."""

    push: bool = False
    pop: bool = False


class Swept(msgspec.Struct):
    """Counts of a sweep by duty. `more` says that it stopped at its limit."""

    done: dict[str, int]
    more: bool = False


class Handed(msgspec.Struct):
    """A claim's answer with its messages, in the order of its grants."""

    claimed: Claimed
    messages: Sequence[Message]


prepare_types(Settled)


def empty_answer(claim: Claim, why: EmptyReason) -> Handed:
    """The empty answer to a claim that did not reach a store."""
    return Handed(Claimed(claim.group, [], empty=why), ())
