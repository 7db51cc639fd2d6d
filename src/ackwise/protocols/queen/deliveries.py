"""Recent deliveries of this server, and the consumers that polled it in the last minute.

Recent deliveries are a cache that saves look-ups. If a delivery is not in the cache, the engine finds it. The engine
decides about every delivery.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ackwise.core import validation
from ackwise.core.answers import Grant
from ackwise.core.commands import ByRange
from ackwise.core.validation import MICROS
from ackwise.protocols.http_request import Call

MOST_MESSAGES = 100_000

PartitionLease = tuple[str, str | None]
"""(partition id, lease id or None): how an acknowledgement names its lease."""


class _Run:
    """Transaction ids of consecutive messages of one lane, from `lo` on."""

    __slots__ = ("_seqs", "lane", "lo", "txids")

    def __init__(self, lane: int, lo: int, txids: list[str]) -> None:
        self.lane, self.lo, self.txids = lane, lo, txids
        self._seqs: dict[str, int] | None = None

    def seq(self, txid: str) -> int | None:
        if self._seqs is None:
            self._seqs = {known: seq for seq, known in enumerate(self.txids, self.lo)}
        return self._seqs.get(txid)


class _Lease:
    """Messages of one lease, by partition id."""

    __slots__ = ("group", "parts", "size")

    def __init__(self, group: str) -> None:
        self.group = group
        self.parts: dict[str, list[_Run]] = {}
        self.size = 0


class PartitionNames:
    """Queue and partition name of a partition id."""

    __slots__ = ("partition", "queue")

    def __init__(self, queue: str, partition: str) -> None:
        self.queue, self.partition = queue, partition


class RecentDeliveries:
    """Cache of the newest leases and their messages, bounded by the number of messages."""

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}
        self._holders: dict[tuple[str, str], str] = {}
        self._names: dict[str, PartitionNames] = {}
        self._messages = 0

    def note(self, lease_id: str, group: str, grant: Grant, lo: int, txids: list[str]) -> None:
        """Remembers delivered messages. Forgets the oldest leases above the bound."""
        lease = self._leases.get(lease_id)
        if lease is None:
            lease = self._leases[lease_id] = _Lease(group)
        lease.parts.setdefault(grant.partition_id, []).append(_Run(grant.lane, lo, txids))
        lease.size += len(txids)
        self._messages += len(txids)
        self._holders[grant.partition_id, group] = lease_id
        self._names[grant.partition_id] = PartitionNames(grant.queue, grant.partition)
        while self._messages > MOST_MESSAGES and len(self._leases) > 1:
            self.forget(next(iter(self._leases)))
        if len(self._names) > MOST_MESSAGES:
            self._names.clear()
        if len(self._holders) > MOST_MESSAGES:
            self._holders.clear()

    def forget(self, lease_id: str) -> None:
        """Removes a lease that has ended."""
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            self._messages -= lease.size
            for partition_id in lease.parts:
                if self._holders.get((partition_id, lease.group)) == lease_id:
                    del self._holders[partition_id, lease.group]

    def names_of(self, partition_id: str) -> PartitionNames | None:
        return self._names.get(partition_id)

    def ranges(
        self, deliveries: Sequence[tuple[str, str, str | None]], group: str | None, default_group: str
    ) -> list[tuple[PartitionLease, ByRange]] | None:
        """Turns (partition id, transaction id, lease id) entries into ranges of leases. None if an entry is unknown."""
        grouped: dict[PartitionLease, list[str]] = {}
        for partition_id, txid, named_lease in deliveries:
            grouped.setdefault((partition_id, named_lease), []).append(txid)
        ranges: list[tuple[PartitionLease, ByRange]] = []
        for key, txids in grouped.items():
            partition_id, named_lease = key
            lease_id = named_lease or self._holders.get((partition_id, group or default_group), "")
            lease = self._leases.get(lease_id)
            if lease is None or (group is not None and lease.group != group):
                return None
            selectors = _ranges(lease_id, lease.parts.get(partition_id, []), txids)
            if selectors is None:
                return None
            ranges += [(key, selector) for selector in selectors]
        return ranges


def _ranges(lease_id: str, runs: list[_Run], txids: list[str]) -> list[ByRange] | None:
    if len(runs) == 1 and runs[0].txids == txids:
        # The usual case: all messages of the lease, in their order.
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
    return [
        ByRange(lease_id, lane, lo, hi, whole=True)
        for lane, lane_seqs in seqs.items()
        for lo, hi in _unbroken_runs(lane_seqs)
    ]


def _unbroken_runs(seqs: list[int]) -> list[tuple[int, int]]:
    """[lo, hi) of each unbroken run. A repeated seq starts a run of its own, so that the engine rejects it."""
    runs: list[tuple[int, int]] = []
    for seq in sorted(seqs):
        if runs and runs[-1][1] == seq:
            runs[-1] = (runs[-1][0], seq + 1)
        else:
            runs.append((seq, seq + 1))
    return runs


SEEN_FOR = 60 * MICROS
MOST = 100_000


def consumer_of(call: Call) -> str:
    """The client id in the header `X-Client-Id`, else the client's host address."""
    client_id = call.header(b"x-client-id").decode("latin-1")
    return validation.name(client_id, "clientId") if client_id else call.host


class RecentConsumers:
    """Consumers by queue and group, with the time of each consumer's last poll. Kept in memory only."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], dict[str, int]] = {}
        self._holders: dict[str, str] = {}
        self._count = 0

    def note(self, queue: str, group: str, consumer: str, now: int, owner: str | None = None) -> None:
        """Record a poll of `consumer`. `owner` is the lease that the poll got."""
        consumers = self._seen.setdefault((queue, group), {})
        self._count += consumer not in consumers
        consumers[consumer] = now
        if owner is not None:
            self._holders[owner] = consumer
        if self._count > MOST or len(self._holders) > MOST:
            self._forget(now)

    def of(self, queue: str, group: str, owners: Iterable[str], now: int) -> set[str]:
        """Consumers of a group: recent pollers, and the holders of these leases that have not polled since.

        This server does not know the holders of leases that another server granted. Each such lease counts as one
        consumer.
        """
        # Lists call this in a helper thread while polls call `note`: only a copy keeps its size.
        seen = self._seen.get((queue, group), {}).copy()
        recent = {name for name, at in seen.items() if now - at <= SEEN_FOR}
        return recent | {self._holders.get(owner, owner) for owner in owners}

    def _forget(self, now: int) -> None:
        """Drop consumers that did not poll for a minute. If that is not enough, drop all: the count may be too low."""
        for key, consumers in list(self._seen.items()):
            recent = {name: at for name, at in consumers.items() if now - at <= SEEN_FOR}
            if recent:
                self._seen[key] = recent
            else:
                del self._seen[key]
        self._holders.clear()
        self._count = sum(map(len, self._seen.values()))
        if self._count > MOST:
            self._seen.clear()
            self._count = 0
