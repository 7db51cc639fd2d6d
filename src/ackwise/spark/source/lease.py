"""Lease mode: Spark's offset is the number of a claim, and a batch is what that claim took.

A claim is made under the key `claimName/n` before Spark writes the offset down, so a batch that is run again is the
same claim, with what of it is not settled yet. What was retried comes back in a later claim.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ackwise.core import ids, limits
from ackwise.core.answers import Claimed, QueueInfo
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import ByLease, Claim, ConfigureGroup, Settle, Settlement
from ackwise.core.errors import BadInput, ClaimConflict, Conflict, UnknownGroup
from ackwise.core.policy import Order, QueuePolicy
from ackwise.core.queries import GetQueue, GroupStats, HeldRow, LeaseRow, ListGroups, ListHeld, ListLeases
from ackwise.core.settlement import Outcome
from ackwise.spark.failing import plainly
from ackwise.spark.reach import Reach, kept, reach
from ackwise.spark.source import schemas, stretches
from ackwise.spark.source.options import SourceOptions
from ackwise.spark.source.packing import Stretch, Work, dealt
from ackwise.spark.source.reading import Batches
from ackwise.spark.source.renewing import Renewer
from ackwise.spark.types import from_ddl

Offset = dict[str, Any]

IDLE_PAUSE, LONGEST_PAUSE = 0.02, 0.1
"""Spark asks an idle query for news about eighty times a second, and every question is a turn of the store."""
REPORT_EVERY = 1.0
LONGEST_NONCE = 32
LONGEST_CLAIM_NAME = limits.MAX_NAME - len("spark::") - LONGEST_NONCE
FIRST_LEASE = 30 * limits.MICROS
"""Until Spark has written down the first offset, nobody could take over the claim of a query that made up its nonce."""


class LeaseReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One lives in a process beside the driver as long as the query does; copies of it read on the executors."""

    def __init__(self, options: SourceOptions, asked: StructType) -> None:
        refuse_table(options)
        self._queue, self._group = options.needed_queue, options.needed_group
        self._options = options
        _check_lengths(options)
        known = schemas.full(schemas.STREAM, options)
        self._places_only = asked == schemas.STRETCHES
        self._schema = asked if self._places_only else schemas.pruned(asked, known)
        self._state: _Claims | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state": None}

    @property
    def _claims(self) -> _Claims:
        if self._state is None:
            self._state = _Claims(self._options, self._queue, self._group)
        return self._state

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self._claims.freeze()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.rows_per_trigger)

    @plainly
    def initialOffset(self) -> Offset:
        return self._claims.initial()

    @plainly
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        return self._claims.latest(start, self._rows(limit))

    def _rows(self, limit: ReadLimit) -> int:
        if isinstance(limit, ReadMaxRows):
            return min(max(1, limit.max_rows), limits.MAX_BATCH)
        return limits.MAX_BATCH if isinstance(limit, ReadAllAvailable) else self._options.rows_per_trigger

    @plainly
    def reportLatestOffset(self) -> Offset | None:
        return self._claims.report()

    @plainly
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return list(self._claims.partitions(end))

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Work)
        context = TaskContext.get()
        if context is not None and context.attemptNumber():
            partition = _still_held(kept(self._options.url), partition)
        if self._places_only:
            return iter([stretches.batch(partition)])
        inside = self._options.payload_schema
        batches = Batches(self._schema, None if inside is None else from_ddl(inside, "option payloadSchema"))
        return batches.read(kept(self._options.url).shelf, partition.stretches, partition.lease)

    def commit(self, end: Offset) -> None:
        """Spark says so one batch late and never for the last; `latestOffset` finishes batches instead."""

    def stop(self) -> None:
        if self._state is not None:
            self._state.close()


def _check_lengths(options: SourceOptions) -> None:
    """Both are part of the owner's name, and none may be cut short: two queries would be one."""
    if len(options.claim_name) > LONGEST_CLAIM_NAME:
        raise BadInput(f"option claimName is longer than {LONGEST_CLAIM_NAME} characters; it is the group unless given")
    if options.nonce is not None and not 0 < len(options.nonce) <= LONGEST_NONCE:
        raise BadInput(f"option nonce must have 1 to {LONGEST_NONCE} characters")


def refuse_table(options: SourceOptions) -> None:
    if options.table != "messages":
        raise BadInput(f"option table is {options.table!r}: tables are read as batches, with spark.read")


def _still_held(here: Reach, work: Work) -> Work:
    """A task that is run again leaves out what its first attempt has settled."""
    assert work.lease is not None
    held: list[HeldRow] = here.transport.ask(ListHeld(lease_id=ids.lease_id(*work.lease)))
    rest = []
    for one in work.stretches:
        for row in held:
            lo, hi = max(one.lo, row.lo), min(one.hi, row.hi)
            if row.lane == one.lane and lo < hi:
                rest.append(msgspec.structs.replace(one, lo=lo, hi=hi))
    return Work(rest, work.lease)


class _Claims:
    """The claims of one query: making them, keeping their leases alive, finishing them."""

    def __init__(self, options: SourceOptions, queue: str, group: str) -> None:
        self._options, self._queue, self._group = options, queue, group
        self._reach = reach(options.url, duties=True)
        try:
            info: QueueInfo = self._reach.transport.ask(GetQueue(queue=queue))
        except BaseException:
            self._reach.close()
            raise
        policy = msgspec.convert(info.policy, QueuePolicy)
        self._order: Order = policy.effective_order
        self._nonce: str | None = None
        self._initial: Offset | None = None
        self._pushed_by: int | None = None
        self._planned: tuple[int, Claimed] | None = None
        self._renewer = Renewer(self._reach.transport, options.lease)
        self._finished = -1
        """The last claim that was finished: an idle query is asked about it again and again."""
        self._idle_since, self._idle = 0.0, 0
        self._reported: tuple[float, Offset] | None = None
        self._checked = False

    def close(self) -> None:
        self._renewer.close()
        self._reach.close()

    def _send(self, command: Any) -> Any:
        return self._reach.transport.send(command)

    def _ask(self, query: Any) -> Any:
        return self._reach.transport.ask(query)

    def freeze(self) -> None:
        """From now on only what has been pushed by now is handed out, and what comes back."""
        self._pushed_by = self._reach.transport.now()

    def initial(self) -> Offset:
        """Where a query without a checkpoint begins: behind every claim that was ever made under this name.

        But before one of its own that is held: it died before Spark wrote that claim down, and nothing of it was done.
        """
        if self._initial is None:
            self._send(ConfigureGroup(queue=self._queue, group=self._group, start=self._options.start))
            self._nonce = self._options.nonce or uuid.uuid4().hex
            number = 0
            for newest in self._leases(live_only=False, limit=1):
                held = newest.ended_at is None and newest.owner == self._owner
                number = _number(newest) - held
            self._initial = self._offset(number, self._nonce)
        return self._initial

    def _offset(self, number: int, nonce: str) -> Offset:
        return {
            "queue": self._queue,
            "group": self._group,
            "claimName": self._options.claim_name,
            "claim": number,
            "nonce": nonce,
        }

    def _take_up(self, offset: Offset) -> int:
        """The number of an offset, and whose it is."""
        if "claim" not in offset:
            raise Conflict("the checkpoint was written in log mode; option mode must stay log, or use a new checkpoint")
        for key, mine in (("queue", self._queue), ("group", self._group), ("claimName", self._options.claim_name)):
            if offset.get(key) != mine:
                raise Conflict(
                    f"the checkpoint belongs to {key} {offset.get(key)!r}, and option {key} is {mine!r}; "
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
        found: list[LeaseRow] = self._ask(
            ListLeases(queue=self._queue, group=self._group, key_prefix=prefix, live_only=live_only, limit=limit)
        )
        # A name with a slash may begin with another one and its slash.
        return [lease for lease in found if lease.key is not None and lease.key[len(prefix) :].isdecimal()]

    def _newest(self) -> int:
        return max((_number(lease) for lease in self._leases(live_only=False)), default=0)

    def latest(self, start: Offset, rows: int) -> Offset:
        """Finish the claim of the batch before, which Spark has committed, and make the next."""
        number = self._take_up(start)
        self._check_alone()
        self._finish(number)
        self._planned = None
        self._pause()
        first = start == self._initial and self._options.nonce is None
        while True:
            number += 1
            claimed = self._claim(number, rows, min(FIRST_LEASE, self._options.lease) if first else self._options.lease)
            if claimed.grants:
                self._idle = 0
                self._planned = number, claimed
                self._renewer.keep(claimed.lease_id)
                return self._offset(number, str(self._nonce))
            if claimed.empty is not EmptyReason.ENDED:
                self._idle_since, self._idle = time.monotonic(), self._idle + 1
                return start
            number = max(number, self._newest())

    def _pause(self) -> None:
        """The longer nothing comes, the more seldom it is asked for."""
        pause = min(LONGEST_PAUSE, IDLE_PAUSE * self._idle)
        wait = self._idle_since + pause - time.monotonic()
        if wait > 0:
            time.sleep(wait)

    def _claim(self, number: int, rows: int, lease: int) -> Claimed:
        try:
            claimed: Claimed = self._send(
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
                    start=self._options.start,
                )
            )
        except ClaimConflict:
            raise self._in_use(self._key(number)) from None
        return claimed

    def _check_alone(self) -> None:
        """Once, before anything is claimed: another query may be at work under this name."""
        if self._checked:
            return
        leases, now = self._leases(live_only=True), self._reach.transport.now()
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
        """What of a committed batch nobody settled was filtered out on the way: `unsettled` says what that means."""
        if number == self._finished:
            return
        lease_id = self._lease_of(number)
        self._renewer.stop()
        if lease_id is not None:
            outcome = Outcome(self._options.unsettled)
            self._send(Settle(entries=[Settlement(selector=ByLease(lease_id), outcome=outcome)]))
        self._finished = number

    def _lease_of(self, number: int) -> str | None:
        if self._planned is not None and self._planned[0] == number:
            return self._planned[1].lease_id
        mine = (one for one in self._leases(live_only=True) if one.key == self._key(number))
        return next((one.lease_id for one in mine if one.owner == self._owner), None)

    def partitions(self, end: Offset) -> list[Work]:
        """The claim that was just made; after a restart the same claim again, with what of it is not settled."""
        number = self._take_up(end)
        if self._planned is None or self._planned[0] != number:
            if not any(one.key == self._key(number) for one in self._leases(live_only=False)):
                # Made so long ago that the store has forgotten it: a claim under its number would take other records,
                # and what was done for the batch would be taken for done with them. Its own come in a later claim.
                return []
            self._planned = number, self._claim(number, self._options.rows_per_trigger, self._options.lease)
        claimed = self._planned[1]
        if not claimed.grants:
            return []
        self._renewer.keep(claimed.lease_id, now=True)
        granted = [
            Stretch(g.lane, g.queue, g.partition, g.partition_id, g.priority, g.lo, g.hi, g.attempt)
            for g in claimed.grants
        ]
        lease = (claimed.lease_no, claimed.tag)
        piles = dealt(granted, self._options.partitions, split=self._order == "relaxed")
        return [Work(pile, lease) for pile in piles]

    def report(self) -> Offset:
        """How far there is to go, for whoever watches the query's progress."""
        now = time.monotonic()
        if self._reported is None or now - self._reported[0] > REPORT_EVERY:
            try:
                groups: list[GroupStats] = self._ask(ListGroups(queue=self._queue, group=self._group))
            except UnknownGroup:
                groups = []
            self._reported = now, {"lag": sum(group.lag for group in groups)}
        return self._reported[1]


def _number(lease: LeaseRow) -> int:
    return int((lease.key or "/0").rpartition("/")[2])
