"""Messages of a claim as columns and as objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, overload

import msgspec

from ackwise.broker.turn_queue import Submission
from ackwise.core.answers import Claimed, Grant, Handed, Settled
from ackwise.core.commands import Claim, Settle, release_command
from ackwise.core.errors import AckwiseError
from ackwise.core.lane_range import LaneRange
from ackwise.core.messages import Message
from ackwise.engine.segment import Segment
from ackwise.store.port import SHORT_READ, Store

SHORT_BYTES = 1 << 20
"""Claims of at most this many bytes are short: an event loop reads them from a local store and writes them itself."""

Gate = Callable[[int, bool], Awaitable[None] | None]
"""Called with the bytes of a claim before its messages are read, and whether the claim can still be released.

The gate may wait, or refuse the claim by raising, only if it can be released: an auto-ack is final.
"""


class SegmentSlice(NamedTuple):
    """Messages [lo, hi) of one grant inside one segment. Protocols read its columns without building messages."""

    grant: Grant
    lo: int
    hi: int
    segment: Segment


class LazyMessages(Sequence[Message]):
    """Messages of a claim. Each message object is built when it is read."""

    __slots__ = ("_places", "_size", "slices")

    def __init__(self, claimed: Claimed, segments: list[list[Segment]]) -> None:
        self.slices: list[SegmentSlice] = []
        for grant, of_grant in zip(claimed.grants, segments, strict=True):
            for segment in of_grant:
                lo, hi = max(grant.lo, segment.first), min(grant.hi, segment.last + 1)
                if lo < hi:
                    self.slices.append(SegmentSlice(grant, lo, hi, segment))
        self._size = sum(piece.hi - piece.lo for piece in self.slices)
        self._places: list[tuple[Segment, int]] | None = None

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if self._places is None:
            self._places = [(segment, seq) for _, lo, hi, segment in self.slices for seq in range(lo, hi)]
        if isinstance(index, slice):
            return [segment.message(seq) for segment, seq in self._places[index]]
        segment, seq = self._places[index]
        return segment.message(seq)

    def __iter__(self) -> Iterator[Message]:
        return (segment.message(seq) for _, lo, hi, segment in self.slices for seq in range(lo, hi))


def segment_slices(handed: Handed) -> Sequence[SegmentSlice]:
    """Claimed messages as parts of segments, for protocols that read columns."""
    return handed.messages.slices if isinstance(handed.messages, LazyMessages) else ()


def is_short(claimed: Claimed) -> bool:
    """Whether an event loop may read and write the claim itself, because it is small."""
    return claimed.size <= SHORT_BYTES and sum(grant.hi - grant.lo for grant in claimed.grants) <= SHORT_READ


def without_takeover(claim: Claim) -> Claim:
    """The claim for a retry: only its first try may take over an earlier claim with the same key."""
    return claim if claim.key is None else msgspec.structs.replace(claim, takes_over=False)


def release_claims(claims: Iterable[Claimed]) -> Settle | None:
    """The command that releases the leases of claims without counting a failure. None if there are no leases."""
    lease_ids = [claimed.lease_id for claimed in claims if claimed.lease_no]
    return release_command(lease_ids) if lease_ids else None


def split_answers(
    submission: Submission, settle: Settle | None
) -> tuple[list[Settled], list[Claimed], AckwiseError | None]:
    """Answers of a settlement, answers of the claims after it, and the first refusal.

    The details of the refusal contain the settlements that were done.
    """
    if submission.error is not None:
        raise submission.error
    results = submission.results or []
    refusal = next((result for result in results if isinstance(result, AckwiseError)), None)
    settled = results[0] if settle is not None and isinstance(results[0], list) else []
    if refusal is not None and settled:
        refusal.details["settled"] = settled
    return settled, [result for result in results if isinstance(result, Claimed)], refusal


def deliver(store: Store, claimed: Claimed) -> Handed:
    """Read the claimed messages after the commit, without the writer."""
    if not claimed.grants:
        return Handed(claimed, ())
    segments = claimed.prefetched
    if segments is None:
        segments = store.read([LaneRange(grant.lane, grant.lo, grant.hi) for grant in claimed.grants])
    return Handed(claimed, LazyMessages(claimed, segments))
