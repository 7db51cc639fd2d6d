"""What commands are answered with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import msgspec

from ackwise.core import ids
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim
from ackwise.core.learning import learn
from ackwise.core.messages import Message, Receipt
from ackwise.core.settlement import Reason, Verdict


class Placed(msgspec.Struct, frozen=True):
    """One pushed message before it is spelled out as a `Receipt`."""

    status: str
    id_int: int
    txid: str
    partition: str
    partition_id: str
    seq: int | None


class PlacedRun(Sequence[Placed]):
    """Messages that were all queued one after the other; written down in one piece."""

    def __init__(self, first: int, txids: list[str], partition: str, partition_id: str, seq: int) -> None:
        self._first, self._txids, self._partition, self._partition_id, self._seq = (
            first,
            txids,
            partition,
            partition_id,
            seq,
        )
        # The list may grow behind us: other callers' messages join the same segment.
        self._count = len(txids)

    @property
    def partition_id(self) -> str:
        return self._partition_id

    def columns(self) -> tuple[list[str], list[str]]:
        """(message ids, transaction ids) as text."""
        spelled = ids.uuid_texts(self._first, self._count)
        return spelled, [txid or own for txid, own in zip(self._txids, spelled, strict=False)]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Placed: ...
    @overload
    def __getitem__(self, index: slice) -> list[Placed]: ...
    def __getitem__(self, index: int | slice) -> Placed | list[Placed]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        return Placed("queued", self._first + at, self._txids[at], self._partition, self._partition_id, self._seq + at)


class Receipts(Sequence[Receipt]):
    """The receipts of a push in the order of its messages, spelled out when looked at."""

    def __init__(self, placed: Sequence[Placed]) -> None:
        self._placed = placed

    @property
    def run(self) -> PlacedRun | None:
        """All of them in one piece, when they were queued that way."""
        return self._placed if isinstance(self._placed, PlacedRun) else None

    def __len__(self) -> int:
        return len(self._placed)

    @overload
    def __getitem__(self, index: int) -> Receipt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...
    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [_spell(p) for p in self._placed[index]]
        return _spell(self._placed[index])

    def __iter__(self) -> Iterator[Receipt]:
        return map(_spell, self._placed)

    def __repr__(self) -> str:
        return f"Receipts({list(self)!r})"


def _spell(p: Placed) -> Receipt:
    message_id = ids.uuid_text(p.id_int)
    return Receipt(p.status, message_id, p.txid or message_id, p.partition, p.partition_id, p.seq)


class Grant(msgspec.Struct, frozen=True):
    """A run of messages [lo, hi) of one lane, handed out alike."""

    queue: str
    partition: str
    partition_id: str
    lane: int
    priority: int
    lo: int
    hi: int
    failures: int
    attempt: int


class Claimed(msgspec.Struct):
    """The answer to a claim. Without grants, `empty` says why and `until` when to look again."""

    group: str
    grants: list[Grant]
    lease_no: int = 0
    tag: int = 0
    deadline: int = 0
    empty: EmptyReason | None = None
    until: int | None = None
    prefetched: Any = None
    """With auto-ack nothing holds the messages after the commit, so the store reads them inside it."""
    size: int = 0
    """Upper bound of the bytes that reading the messages takes."""

    @property
    def lease_id(self) -> str:
        return ids.lease_id(self.lease_no, self.tag) if self.lease_no else ""

    @property
    def count(self) -> int:
        return sum(g.hi - g.lo for g in self.grants)

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """(lane, lo, hi) of each grant."""
        return [(g.lane, g.lo, g.hi) for g in self.grants]


class Settled(msgspec.Struct, omit_defaults=True):
    """The answer for one settle entry: `count` messages were settled, the lease may have ended with it, or with what
    was `already` settled.

    Of a range or a lease that failed, some may have died and some return: the verdict is `dead` only when all died.
    `dead` without a reason means dropped: the queue keeps no dead letters.
    """

    verdict: Verdict
    count: int = 0
    lease_ended: bool = False
    reason: Reason | None = None
    dead: int = 0
    failures: int = 0
    """Of the last message settled: what the retry limit counts."""
    dead_ids: list[str] = []
    """The first dead letters that it made."""
    unacked: bool = False
    """Of an ack that is `already`: what it named did not end in an ack; it comes again, or is dead."""
    lease_id: str | None = None
    """Which lease ended with it, for whoever named a transaction id and no lease."""


class Extended(msgspec.Struct):
    """`deadline` is the new one; None when the lease is gone (`verdict` says how)."""

    verdict: Verdict | None
    deadline: int | None
    by_settling: bool = False
    """Whether it is gone because its messages were settled one by one, and nothing of it was taken away."""


class TransactionDone(msgspec.Struct):
    settled: list[Settled]
    pushed: list[Receipts]


class QueueInfo(msgspec.Struct):
    """A queue as stored."""

    name: str
    id: int
    namespace: str
    task: str
    policy: dict[str, object]
    paused: bool
    created_at: int
    created: bool = False
    partition_id: str | None = None


class Counted(msgspec.Struct):
    """How many rows or messages a command touched."""

    count: int


class Redriven(msgspec.Struct):
    """Per dead letter: `redriven`, `replayed`, `duplicate`, `not_found`, or a refusal's code; and the copies pushed."""

    results: dict[str, str]
    copies: dict[str, Receipt] = {}

    @property
    def count(self) -> int:
        return sum(1 for result in self.results.values() if result in ("redriven", "replayed"))


class Swept(msgspec.Struct):
    """What a sweep did, by duty; `more` when it stopped at its limit; `next_at` is when something is due again."""

    done: dict[str, int]
    more: bool = False
    next_at: int | None = None


class Handed(msgspec.Struct):
    """A claim with its messages, in the order of its grants."""

    claimed: Claimed
    messages: Sequence[Message]


learn(Settled)


def nothing(claim: Claim, why: EmptyReason) -> Handed:
    """A claim's answer when it was not put to a store."""
    return Handed(Claimed(claim.group, [], empty=why), ())
