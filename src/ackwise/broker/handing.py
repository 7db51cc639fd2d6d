"""A claim's messages, read when they are looked at, and queries by type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import msgspec

from ackwise.broker.pending import Slot
from ackwise.core import queries as q
from ackwise.core.answers import Claimed, Grant, Handed, Settled
from ackwise.core.commands import Claim, Settle, giving_back
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.graph.commands import DescribeGraph, IsSessionHere
from ackwise.core.messages import Message
from ackwise.store.port import SHORT_READ, Store
from ackwise.store.segment import Segment

SHORT_BYTES = 1 << 20
"""Claims of at most this many bytes are short: an event loop reads them from a local store and writes them itself."""

Gate = Callable[[int, bool], Awaitable[None] | None]
"""Called with the bytes of a claim before its messages are read, and whether the claim can still be released.

The gate may wait, or refuse the claim by raising, only if it can be released: an auto-ack is final.
"""


class Run(NamedTuple):
    """Messages [lo, hi) of one grant that stand in one segment: its columns are read without touching a message."""

    grant: Grant
    lo: int
    hi: int
    segment: Segment


class LazyMessages(Sequence[Message]):
    """Messages behind the grants of a claim; a segment is unpacked message by message."""

    __slots__ = ("_places", "_size", "runs")

    def __init__(self, claimed: Claimed, segments: list[list[Segment]]) -> None:
        self.runs: list[Run] = []
        for grant, found in zip(claimed.grants, segments, strict=True):
            for segment in found:
                lo, hi = max(grant.lo, segment.first), min(grant.hi, segment.last + 1)
                if lo < hi:
                    self.runs.append(Run(grant, lo, hi, segment))
        self._size = sum(run.hi - run.lo for run in self.runs)
        self._places: list[tuple[Segment, int]] | None = None

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if self._places is None:
            self._places = [(segment, seq) for _, lo, hi, segment in self.runs for seq in range(lo, hi)]
        if isinstance(index, slice):
            return [segment.message(seq) for segment, seq in self._places[index]]
        segment, seq = self._places[index]
        return segment.message(seq)

    def __iter__(self) -> Iterator[Message]:
        return (segment.message(seq) for _, lo, hi, segment in self.runs for seq in range(lo, hi))


def runs(handed: Handed) -> Sequence[Run]:
    """What was handed over, for whoever reads it column by column."""
    return handed.messages.runs if isinstance(handed.messages, LazyMessages) else ()


def is_short(claimed: Claimed) -> bool:
    """Whether the claim is read and written so quickly that an event loop can do it."""
    return claimed.count <= SHORT_READ and claimed.size <= SHORT_BYTES


def waiting(claim: Claim) -> Claim:
    """As it is tried for again while it waits."""
    return claim if claim.key is None else msgspec.structs.replace(claim, takes_over=False)


def release(claims: Iterable[Claimed]) -> Settle | None:
    """What gives claims back unspent; None when they hold nothing."""
    held = [claimed.lease_id for claimed in claims if claimed.lease_no]
    return giving_back(held) if held else None


def split(slot: Slot, settle: Settle | None) -> tuple[list[Settled], list[Claimed], AckwiseError | None]:
    """The answers of a settlement, those of the claims behind it, and the first refusal, which says what was done."""
    if slot.error is not None:
        raise slot.error
    results = slot.results or []
    refusal = next((r for r in results if isinstance(r, AckwiseError)), None)
    settled = results[0] if settle is not None and not isinstance(results[0], AckwiseError) else []
    if refusal is not None and settled:
        refusal.details["settled"] = settled
    return settled, [r for r in results if isinstance(r, Claimed)], refusal


def hand_over(store: Store, claimed: Claimed) -> Handed:
    """Read what was claimed: after the commit, beside the writer."""
    if not claimed.grants:
        return Handed(claimed, ())
    segments = store.read(claimed.ranges) if claimed.prefetched is None else claimed.prefetched
    return Handed(claimed, LazyMessages(claimed, segments))


def answer(store: Store, query: q.Query) -> Any:
    """Ask the store the verb that belongs to the query."""
    verbs: dict[type[q.Query], Callable[[Any], Any]] = {
        q.ListQueues: store.list_queues,
        q.GetQueue: store.get_queue,
        q.Browse: store.browse,
        q.FindMessage: store.find_message,
        q.ListDead: store.list_dead,
        q.ListGroups: store.list_groups,
        q.ListGroupNames: store.list_group_names,
        q.ListCursors: store.list_cursors,
        q.ListPlaces: store.list_places,
        q.ListPartitions: store.list_partitions,
        q.ListLanes: store.list_lanes,
        q.ListLeases: store.list_leases,
        q.ListHeld: store.list_held,
        q.ListDepths: store.list_depths,
        q.IsHeld: store.is_held,
        q.ReadLedger: store.read_ledger,
        q.QueueStats: store.stats,
        q.ListStats: store.list_stats,
        DescribeGraph: store.describe_graph,
        IsSessionHere: store.is_session_here,
    }
    verb = verbs.get(type(query))
    if verb is None:
        raise BadInput(f"{type(query).__name__} is not a query")
    return verb(query)
