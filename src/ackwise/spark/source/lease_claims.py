"""Claims that the offsets of a query name, in lease mode."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from ackwise.client.settlements import HeldLeases
from ackwise.client.sync.lease import Lease
from ackwise.client.sync.lease_keeper import LeaseKeeper, extend_all
from ackwise.core import validation
from ackwise.core.answers import Claimed
from ackwise.core.commands import ByLease, Claim, Command, ConfigureGroup, Settle, Settlement
from ackwise.core.errors import AckwiseError, ClaimConflict, Conflict, UnknownGroup, UnknownQueue
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.policy import Order, QueuePolicy
from ackwise.core.queries import GetQueue, ListGroups, ListLeases, Query
from ackwise.core.rows import LeaseRow
from ackwise.core.settlement import Outcome
from ackwise.spark.connections import open_connection
from ackwise.spark.errors import warn_missing_queue
from ackwise.spark.source.lane_ranges import SourceRange, TaskRanges, assign_ranges
from ackwise.spark.source.options import SourceOptions

A = TypeVar("A")
Offset = dict[str, Any]

IDLE_PAUSE, LONGEST_PAUSE = 0.02, 0.1
"""Seconds between claims of an idle query. Spark asks about eighty times a second, and each claim is a turn."""
REPORT_EVERY = 1.0
"""Seconds for which a reported lag is reused."""
FIRST_LEASE = 30 * validation.MICROS
"""Lease of the first claim of a query that made its own nonce. If the query dies before Spark stores that offset, no
other query can take the claim over, so the lease is short."""


class BatchLease(Lease):
    """The lease of a batch. Only the server's answer ends it, because Spark cannot cancel the batch."""

    __slots__ = ()

    def remaining(self, now: int) -> int:
        return max(1, super().remaining(now))


class LeaseClaims:
    """Claims of one query: makes them, extends their leases and settles what a batch left."""

    def __init__(self, options: SourceOptions, queue: str, group: str) -> None:
        self._options, self._queue, self._group = options, queue, group
        self._connection = open_connection(options.url, duties=True)
        self._start = options.start
        self._order: Order | None = None
        """The order of the claims. None while the queue does not exist."""
        self._nonce: str | None = None
        self._initial: Offset | None = None
        self._pushed_by: int | None = None
        self._planned: tuple[int, BatchLease] | None = None
        """Number and lease of the current claim."""
        self._keeper = LeaseKeeper(self._connection.transport.now, self._extend, fraction=1 / 3)
        self._driver = os.getppid()
        self._finished = -1
        """Number of the last finished claim. Spark asks an idle query about it again and again."""
        self._idle_since, self._idle = 0.0, 0
        self._reported: tuple[float, Offset] | None = None
        self._checked = self._warned = False

    def close(self) -> None:
        self._keeper.close()
        self._connection.close()

    def _extend(self, leases: Sequence[BatchLease]) -> list[AckwiseError | None]:
        if os.getppid() != self._driver:
            # The driver died. Its leases must expire, so that the next query can claim their messages.
            for lease in leases:
                self._keeper.drop(lease)
            return [None] * len(leases)
        return extend_all(self._connection.transport, leases)

    def _lost(self, lease: BatchLease) -> None:
        if not lease.in_doubt:
            message = f"ackwise: the lease {lease.claimed.lease_id} is lost; its messages are delivered again"
            print(message, file=sys.stderr)

    def _plan(self, number: int, claimed: Claimed) -> BatchLease:
        """Make the claim the current one and extend its lease from now on."""
        self._drop_plan()
        lease = BatchLease(self._connection.transport, HeldLeases(), claimed, keyed=True)
        self._planned = number, lease
        self._keeper.keep(lease, self._lost)
        return lease

    def _drop_plan(self) -> None:
        """Stop extending the lease of the current claim."""
        if self._planned is not None:
            self._keeper.drop(self._planned[1])
            self._planned = None

    def _send(self, command: Command[A]) -> A:
        return self._connection.transport.send(command)

    def _ask(self, query: Query[A]) -> A:
        return self._connection.transport.ask(query)

    def freeze(self) -> None:
        """Claim only messages pushed before now, and retries of them."""
        transport = self._connection.transport
        self._pushed_by = transport.wall_of(transport.now())

    def initial(self) -> Offset:
        """First offset of a query without a checkpoint: the newest claim number under this name.

        If this query's owner still holds that claim, the offset is one less. Then the query died before Spark stored
        the offset, and nothing of the claim was processed.
        """
        if self._initial is None:
            self._nonce = self._options.nonce or uuid.uuid4().hex
            self._initial = self._offset(self._first_number() if self._queue_exists() else 0, self._nonce)
        return self._initial

    def _first_number(self) -> int:
        for newest in self._leases(live_only=False, limit=1):
            held = newest.ended_at is None and newest.owner == self._owner
            return _number(newest) - held
        return 0

    def _queue_exists(self) -> bool:
        """Whether the queue exists. Creates the group when the queue is there for the first time."""
        if self._order is not None:
            return True
        try:
            info = self._ask(GetQueue(queue=self._queue))
        except UnknownQueue:
            if not self._warned:
                warn_missing_queue(self._queue)
                self._warned = True
            if self._start == "new":
                # The query began before the queue, so all messages of the queue are new.
                self._start = "all"
            return False
        # A waiting retry blocks its partition only if the policy itself says `strict`. The order that follows from the
        # exclusivity does not count: one poison record would hold up all later records.
        self._order = msgspec.convert(info.policy, QueuePolicy).order or "relaxed"
        self._send(ConfigureGroup(queue=self._queue, group=self._group, start=self._start))
        return True

    def _offset(self, number: int, nonce: str) -> Offset:
        return {
            "queue": self._queue,
            "group": self._group,
            "claimName": self._options.claim_name,
            "claim": number,
            "nonce": nonce,
        }

    def _adopt(self, offset: Offset) -> int:
        """The claim number of an offset. Adopts the nonce of the offset, and rejects an offset of another query."""
        if "claim" not in offset:
            raise Conflict("the checkpoint was written in log mode; option mode must stay log, or use a new checkpoint")
        for key, expected in (("queue", self._queue), ("group", self._group), ("claimName", self._options.claim_name)):
            if offset.get(key) != expected:
                raise Conflict(
                    f"the checkpoint belongs to {key} {offset.get(key)!r}, and option {key} is {expected!r}; "
                    "use its own checkpoint for each"
                )
        self._nonce = offset["nonce"]
        return int(offset["claim"])

    @property
    def _owner(self) -> str:
        return f"spark:{self._options.claim_name}:{self._nonce}"

    def _key(self, number: int | str) -> str:
        return f"{self._options.claim_name}/{number}"

    def _leases(self, *, live_only: bool, limit: int = 100) -> list[LeaseRow]:
        prefix = self._key("")
        leases = self._ask(
            ListLeases(queue=self._queue, group=self._group, key_prefix=prefix, live_only=live_only, limit=limit)
        )
        # The prefix `a/` also finds the keys of the claim name `a/b`.
        return [lease for lease in leases if lease.key is not None and lease.key[len(prefix) :].isdecimal()]

    def _newest(self) -> int:
        return max((_number(lease) for lease in self._leases(live_only=False)), default=0)

    def latest(self, start: Offset, rows: int) -> Offset:
        """Offset of the next claim. Finishes the previous claim, whose batch Spark has committed."""
        number = self._adopt(start)
        if not self._queue_exists():
            self._idle_since, self._idle = time.monotonic(), self._idle + 1
            self._pause()
            return start
        self._check_alone()
        self._finish(number)
        self._drop_plan()
        self._pause()
        first = start == self._initial and self._options.nonce is None
        while True:
            number += 1
            claimed = self._claim(number, rows, min(FIRST_LEASE, self._options.lease) if first else self._options.lease)
            if claimed.grants:
                self._idle = 0
                self._plan(number, claimed)
                return self._offset(number, str(self._nonce))
            if claimed.empty is not EmptyReason.ENDED:
                self._idle_since, self._idle = time.monotonic(), self._idle + 1
                return start
            number = max(number, self._newest())

    def _pause(self) -> None:
        """Wait before the next claim of an idle query. The wait grows with each empty claim."""
        pause = min(LONGEST_PAUSE, IDLE_PAUSE * self._idle)
        wait = self._idle_since + pause - time.monotonic()
        if wait > 0:
            time.sleep(wait)

    def _claim(self, number: int, rows: int, lease: int) -> Claimed:
        try:
            claimed = self._send(
                Claim(
                    queue=self._queue,
                    group=self._group,
                    most=rows,
                    most_bytes=self._options.bytes_per_trigger,
                    lease=lease,
                    exclusivity="partition",
                    order=self._order,
                    owner=self._owner,
                    key=self._key(number),
                    bulk=True,
                    pushed_by=self._pushed_by,
                    start=self._start,
                )
            )
        except ClaimConflict:
            raise self._in_use(self._key(number)) from None
        return claimed

    def _check_alone(self) -> None:
        """Before the first claim, reject a claim name under which another query holds a live lease."""
        if self._checked:
            return
        transport = self._connection.transport
        leases, now = self._leases(live_only=True), transport.wall_of(transport.now())
        for lease in leases:
            if lease.owner != self._owner and lease.deadline > now:
                raise self._in_use(str(lease.key))
        self._checked = True

    def _in_use(self, key: str) -> Conflict:
        name = self._options.claim_name
        return ClaimConflict(
            f"option claimName: {name!r} is in use by another query (claim {key}, group {self._group!r}); give each "
            "query a claimName of its own, start from the other's checkpoint, or wait until its lease has ended",
            key=key,
        )

    def _finish(self, number: int) -> None:
        """Settle the remaining messages of a committed batch with the outcome of option `unsettled`.

        The query filtered these messages out.
        """
        if number == self._finished:
            return
        lease_id = self._lease_of(number)
        self._drop_plan()
        if lease_id is not None:
            outcome = Outcome(self._options.unsettled)
            self._send(Settle(entries=[Settlement(selector=ByLease(lease_id), outcome=outcome)]))
        self._finished = number

    def _lease_of(self, number: int) -> str | None:
        if self._planned is not None and self._planned[0] == number:
            return self._planned[1].claimed.lease_id
        for lease in self._leases(live_only=True):
            if lease.key == self._key(number) and lease.owner == self._owner:
                return lease.lease_id
        return None

    def partitions(self, end: Offset) -> list[TaskRanges]:
        """Tasks of the claim just made. After a restart: the same claim, with the messages that are not settled."""
        number = self._adopt(end)
        if not self._queue_exists():
            return []
        if self._planned is not None and self._planned[0] == number:
            lease = self._planned[1]
        else:
            if not any(lease.key == self._key(number) for lease in self._leases(live_only=False)):
                # The store has removed this old claim. A new claim under its number would take other messages, and
                # Spark would skip outputs that the batch has already written. The messages come in a later claim.
                return []
            lease = self._plan(number, self._claim(number, self._options.rows_per_trigger, self._options.lease))
        claimed = lease.claimed
        if not claimed.grants:
            return []
        # Spark has stored the offset: from now on the claim has its full lease time, which the keeper sets at once.
        lease.duration, lease.in_doubt = self._options.lease, True
        self._keeper.keep(lease, self._lost)
        granted = [
            SourceRange(g.lane, g.queue, g.partition, g.partition_id, g.priority, g.lo, g.hi, g.attempt)
            for g in claimed.grants
        ]
        lease_name = (claimed.lease_no, claimed.tag)
        tasks = assign_ranges(granted, self._options.partitions, split=self._order == "relaxed")
        return [TaskRanges(ranges, lease_name) for ranges in tasks]

    def report(self) -> Offset:
        """The group's lag, for Spark's progress report."""
        now = time.monotonic()
        if self._reported is None or now - self._reported[0] > REPORT_EVERY:
            try:
                groups = self._ask(ListGroups(queue=self._queue, group=self._group))
            except (UnknownGroup, UnknownQueue):
                groups = []
            self._reported = now, {"lag": sum(group.lag for group in groups)}
        return self._reported[1]


def _number(lease: LeaseRow) -> int:
    return int((lease.key or "/0").rpartition("/")[2])
