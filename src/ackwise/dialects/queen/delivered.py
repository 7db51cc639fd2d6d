"""What this server handed out lately: Queen acks by transaction id, and whoever remembers the places need not search.

Only a short cut. What is not here, or no longer true, is found by the engine; it decides in any case.
"""

from __future__ import annotations

from collections.abc import Sequence

from ackwise.core.answers import Grant
from ackwise.core.commands import ByRange

MOST_MESSAGES = 100_000

Named = tuple[str, str | None]
"""A partition's id, and the lease's where one was given."""


class _Run:
    """Messages of one lane from `lo` on."""

    __slots__ = ("_seqs", "lane", "lo", "txids")

    def __init__(self, lane: int, lo: int, txids: list[str]) -> None:
        self.lane, self.lo, self.txids = lane, lo, txids
        self._seqs: dict[str, int] | None = None

    def seq(self, txid: str) -> int | None:
        if self._seqs is None:
            self._seqs = {one: seq for seq, one in enumerate(self.txids, self.lo)}
        return self._seqs.get(txid)


class _Lease:
    __slots__ = ("group", "parts", "size")

    def __init__(self, group: str) -> None:
        self.group = group
        self.parts: dict[str, list[_Run]] = {}
        self.size = 0


class Place:
    """The names that go with a partition's id."""

    __slots__ = ("partition", "queue")

    def __init__(self, queue: str, partition: str) -> None:
        self.queue, self.partition = queue, partition


class Delivered:
    """The newest leases and what is in them, bounded by the number of messages."""

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}
        self._holders: dict[tuple[str, str], str] = {}
        self._places: dict[str, Place] = {}
        self._messages = 0

    def note(self, lease_id: str, group: str, grant: Grant, lo: int, txids: list[str]) -> None:
        lease = self._leases.get(lease_id)
        if lease is None:
            lease = self._leases[lease_id] = _Lease(group)
        lease.parts.setdefault(grant.partition_id, []).append(_Run(grant.lane, lo, txids))
        lease.size += len(txids)
        self._messages += len(txids)
        self._holders[grant.partition_id, group] = lease_id
        self._places[grant.partition_id] = Place(grant.queue, grant.partition)
        while self._messages > MOST_MESSAGES and len(self._leases) > 1:
            self.forget(next(iter(self._leases)))
        if len(self._places) > MOST_MESSAGES:
            self._places.clear()
        if len(self._holders) > MOST_MESSAGES:
            self._holders.clear()

    def forget(self, lease_id: str) -> None:
        """The lease has ended."""
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            self._messages -= lease.size
            for partition_id in lease.parts:
                if self._holders.get((partition_id, lease.group)) == lease_id:
                    del self._holders[partition_id, lease.group]

    def place(self, partition_id: str) -> Place | None:
        return self._places.get(partition_id)

    def ranges(
        self, wanted: Sequence[tuple[str, str, str | None]], group: str | None, default_group: str
    ) -> list[tuple[Named, ByRange]] | None:
        """(partition id, transaction id, lease id) entries as ranges of leases, each with how it was named; None when
        one is not known here."""
        grouped: dict[Named, list[str]] = {}
        for partition_id, txid, given in wanted:
            grouped.setdefault((partition_id, given), []).append(txid)
        ranges: list[tuple[Named, ByRange]] = []
        for (partition_id, given), txids in grouped.items():
            lease_id = given or self._holders.get((partition_id, group or default_group), "")
            lease = self._leases.get(lease_id)
            if lease is None or (group is not None and lease.group != group):
                return None
            found = _ranges(lease_id, lease.parts.get(partition_id, []), txids)
            if found is None:
                return None
            ranges += [((partition_id, given), one) for one in found]
        return ranges


def _ranges(lease_id: str, runs: list[_Run], txids: list[str]) -> list[ByRange] | None:
    if len(runs) == 1 and runs[0].txids == txids:
        # All that was handed out, in its order: the usual case.
        return [ByRange(lease_id, runs[0].lane, runs[0].lo, runs[0].lo + len(txids), whole=True)]
    seqs: dict[int, list[int]] = {}
    for txid in txids:
        for run in runs:
            seq = run.seq(txid)
            if seq is not None:
                seqs.setdefault(run.lane, []).append(seq)
                break
        else:
            return None
    return [ByRange(lease_id, lane, lo, hi, whole=True) for lane, some in seqs.items() for lo, hi in _runs(some)]


def _runs(seqs: list[int]) -> list[tuple[int, int]]:
    """[lo, hi) for each unbroken run; a seq that comes twice breaks it, so that it is refused."""
    runs: list[tuple[int, int]] = []
    for seq in sorted(seqs):
        if runs and runs[-1][1] == seq:
            runs[-1] = (runs[-1][0], seq + 1)
        else:
            runs.append((seq, seq + 1))
    return runs
