"""Groups, their progress per partition, and counts per partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import TypeVar

import msgspec

from ackwise.core import queries as q
from ackwise.core.ids import GroupId, LaneId, lease_id
from ackwise.core.rows import (
    GroupDetails,
    GroupStats,
    Page,
    PartitionRow,
    Place,
    PlaceLease,
    QueueSummary,
    Stats,
)
from ackwise.core.spans import Lease
from ackwise.engine import catalog, segment_reads
from ackwise.engine.catalog import GroupRow, QueueRow
from ackwise.engine.ports import Row, Session
from ackwise.engine.reads.counts import group_stats, queue_stats
from ackwise.engine.reads.queues import page
from ackwise.engine.reads.registry import Snapshot, answers
from ackwise.engine.turn import lease_from

T = TypeVar("T")


@answers(q.ListGroups)
def list_groups(snapshot: Snapshot, query: q.ListGroups) -> Page[GroupStats]:
    session = snapshot.session
    pairs = islice(_groups(session, query.queue, query.group, query.after, _batch_size(query.limit)), query.limit)
    counted = [row for batch in _batches(pairs) for row in group_stats(session, batch, snapshot.now)]
    return page(counted, query.limit, lambda row: (row.queue, row.group))


@answers(q.GetGroup)
def get_group(snapshot: Snapshot, query: q.GetGroup) -> GroupDetails:
    session = snapshot.session
    owner = catalog.queue(session, query.queue)
    group = catalog.group(session, owner, query.group)
    (stats,) = group_stats(session, [(owner, group)])
    return GroupDetails(stats, msgspec.to_builtins(group.policy), catalog.version_of(session, group))


def _batches(rows: Iterable[T], size: int = catalog.PAGE) -> Iterator[list[T]]:
    """Cut rows into batches. One statement counts a whole batch."""
    left = iter(rows)
    while batch := list(islice(left, size)):
        yield batch


def _batch_size(limit: int | None) -> int:
    """Number of catalog rows that one statement reads for a page."""
    return max(1, min(catalog.PAGE, limit or catalog.PAGE))


@answers(q.ListGroupNames)
def list_group_names(snapshot: Snapshot, query: q.ListGroupNames) -> Page[str]:
    rows = snapshot.session.rows("group_names", {"after": query.after, "limit": query.limit})
    return page([row[0] for row in rows], query.limit, str)


def _groups(
    session: Session, queue: str | None, name: str | None, after: tuple[str, str] | None, size: int
) -> Iterator[tuple[QueueRow, GroupRow]]:
    """Groups with their queues, by name: of one queue or of all queues, of any name or of one name."""
    if queue is not None:
        yield from _groups_of_queue(session, queue, name, after)
        return
    last_queue, last_group = after or ("", "")
    while True:
        where = {"queue": last_queue, "limit": size}
        if name is not None:
            rows = session.rows("groups_named", {**where, "name": name})
        else:
            rows = session.rows("groups_page", {**where, "grp": last_group})
        for row in rows:
            yield catalog.queue_from(row[:7]), catalog.group_from(row[7:])
        if len(rows) < size:
            return
        last_queue, last_group = rows[-1][1], rows[-1][9]


def _groups_of_queue(
    session: Session, queue: str, name: str | None, after: tuple[str, str] | None
) -> Iterator[tuple[QueueRow, GroupRow]]:
    owner = catalog.queue(session, queue)
    if name is not None:
        named = catalog.find_group(session, owner, name)
        groups = [named] if named is not None else []
    else:
        groups = [catalog.group_from(row) for row in session.rows("groups_of_queue", {"queue": owner.id})]
    for group in groups:
        if after is None or (owner.name, group.name) > after:
            yield owner, group


def leased_by_lane(session: Session, grp: GroupId) -> dict[tuple[int, int], int]:
    """Number of messages that each lease of a group holds, by (lease, lane)."""
    return {(no, lane): int(held) for no, lane, held in session.rows("spans_leased", {"grp": grp})}


@answers(q.QueueStats)
def stats(snapshot: Snapshot, query: q.QueueStats) -> Stats:
    session = snapshot.session
    return queue_stats(session, [catalog.queue(session, query.queue)], snapshot.now)[0]


@answers(q.ListStats)
def list_stats(snapshot: Snapshot, query: q.ListStats) -> Page[QueueSummary]:
    session = snapshot.session
    queues = catalog.queues(session, query.namespace, query.task, after=query.after, limit=query.limit)
    summaries = [
        QueueSummary(catalog.info(queue), counted)
        for batch in _batches(queues)
        for queue, counted in zip(batch, queue_stats(session, batch, snapshot.now), strict=True)
    ]
    return page(summaries, query.limit, lambda row: row.info.name)


# places


class _LaneRow(msgspec.Struct):
    """A row of `places_of_group`."""

    part: int
    partition: str
    partition_id: str
    lane: LaneId
    head: int
    first: int
    next: int
    held: int
    acked: int
    dead: int
    skipped: int
    expired: int
    settled_at: int | None
    last_seq: int | None
    last_at: int | None
    nacked: int
    undone: int
    oldest_at: int | None


_PARTITIONS = 1000
"""Partitions that one statement reads."""


@answers(q.ListPlaces)
def list_places(snapshot: Snapshot, query: q.ListPlaces) -> Page[Place]:
    return page(islice(_places(snapshot, query), query.limit), query.limit, _key_of_place)


def _key_of_place(place: Place) -> tuple[str, str, str]:
    return place.queue, place.group, place.partition


def _places(snapshot: Snapshot, query: q.ListPlaces) -> Iterator[Place]:
    session, after = snapshot.session, query.after
    if after is not None:
        # The previous page may have ended inside a group.
        owner = catalog.find_queue(session, after[0])
        group = catalog.find_group(session, owner, after[1]) if owner is not None else None
        if owner is not None and group is not None:
            yield from _places_of_group(snapshot, query, owner, group, after[2])
    behind = after[:2] if after is not None else None
    groups = _groups(session, query.queue, query.group, behind, _batch_size(query.limit))
    for queue, following in _unfinished(snapshot, groups, query.unfinished_since):
        yield from _places_of_group(snapshot, query, queue, following, "")


def _unfinished(
    snapshot: Snapshot, groups: Iterable[tuple[QueueRow, GroupRow]], since: int | None
) -> Iterator[tuple[QueueRow, GroupRow]]:
    """The groups that may have a place with a message that is unfinished since then. All groups if `since` is None."""
    if since is None:
        yield from groups
        return
    for batch in _batches(groups):
        for pair, counted in zip(batch, group_stats(snapshot.session, batch), strict=True):
            if _within(counted.oldest_unfinished_at, since):
                yield pair


def _places_of_group(
    snapshot: Snapshot, query: q.ListPlaces, queue: QueueRow, group: GroupRow, after: str
) -> Iterator[Place]:
    session, holders = snapshot.session, _Holders(snapshot, group.id)
    for lanes in _by_partition(session, queue, group, after, query.limit):
        place = _place(queue, group, lanes)
        if query.unfinished_since is None or _within(place.oldest_unfinished_at, query.unfinished_since):
            place.leases, place.lease = holders.of([lane.lane for lane in lanes])
            if query.last_done:
                _add_last_done(session, place, lanes)
            yield place


def _within(at: int | None, bound: int) -> bool:
    return at is not None and at <= bound


def _by_partition(
    session: Session, queue: QueueRow, group: GroupRow, after: str, limit: int | None
) -> Iterator[list[_LaneRow]]:
    """The lanes of each partition whose name comes after the name `after`."""
    size = min(_PARTITIONS, limit or _PARTITIONS)
    where = {"queue": queue.id, "grp": group.id, "limit": size}
    while True:
        rows = session.rows("places_of_group", {**where, "after": after})
        for _, lanes in groupby((_LaneRow(*row) for row in rows), lambda lane: lane.part):
            yield list(lanes)
        last = _last_part(session, queue, after, size)
        if last is None:
            return
        after = last


def _last_part(session: Session, queue: QueueRow, after: str, size: int) -> str | None:
    """The last partition of a full page. None at the end. The page itself has no row for a partition without lanes."""
    row = session.row("part_at", {"queue": queue.id, "after": after, "offset": size - 1})
    return str(row[0]) if row else None


def _place(queue: QueueRow, group: GroupRow, lanes: list[_LaneRow]) -> Place:
    place = Place(queue.name, group.name, lanes[0].partition, lanes[0].partition_id)
    for lane in lanes:
        for name in ("acked", "dead", "skipped", "expired", "held", "nacked"):
            setattr(place, name, getattr(place, name) + getattr(lane, name))
        place.unread += lane.head - lane.next
    place.settled_at = max((lane.settled_at for lane in lanes if lane.settled_at is not None), default=None)
    place.last_settled_at = max((lane.last_at for lane in lanes if lane.last_at is not None), default=None)
    place.oldest_unfinished_at = min((lane.oldest_at for lane in lanes if lane.oldest_at is not None), default=None)
    return place


def _add_last_done(session: Session, place: Place, lanes: list[_LaneRow]) -> None:
    """Add the last finished and the last settled message. The husk of a pruned message still has its id."""
    lane = max(lanes, key=lambda lane: (lane.settled_at or 0, lane.undone > lane.first))
    seq = lane.undone - 1
    if seq >= lane.first:
        place.last_done_id, place.last_done_created_at = _id_and_creation(session, lane.lane, seq)
    newest = max(lanes, key=lambda lane: lane.last_at or 0)
    if newest.last_seq is not None:
        place.last_settled_id, place.last_settled_created_at = _id_and_creation(session, newest.lane, newest.last_seq)


def _id_and_creation(session: Session, lane: LaneId, seq: int) -> tuple[str | None, int | None]:
    """Id and creation of a message. None if neither its segment nor its husk exists."""
    segment = segment_reads.segment_with(session, lane, seq)
    if segment is None:
        return None, None
    message = segment.message(seq)
    return message.id, message.created_at


class _Holders:
    """The leases of a group by lane."""

    def __init__(self, snapshot: Snapshot, grp: GroupId) -> None:
        self._snapshot, session = snapshot, snapshot.session
        leases = {row[0]: lease_from(row) for row in session.rows("leases_of_group", {"grp": grp})}
        self._held = leased_by_lane(session, grp) if leases else {}
        self._in_lane: dict[int, list[Lease]] = {}
        self._granted: dict[tuple[int, int], int] = {}
        for no, lane in self._held:
            self._in_lane.setdefault(lane, []).append(leases[no])
        for lease in leases.values():
            for lane, lo, hi in lease.granted:
                self._granted[lease.no, lane] = self._granted.get((lease.no, lane), 0) + hi - lo

    def of(self, lanes: list[int]) -> tuple[int, PlaceLease | None]:
        """Number of leases with messages of these lanes, and the newest of them."""
        holding = {lease.no: lease for lane in lanes for lease in self._in_lane.get(lane, ())}
        if not holding:
            return 0, None
        newest = holding[max(holding)]
        granted = sum(self._granted.get((newest.no, lane), 0) for lane in lanes)
        held = sum(self._held.get((newest.no, lane), 0) for lane in lanes)
        made_at, deadline = self._snapshot.shown(newest.made_at), self._snapshot.shown(newest.deadline)
        lease = PlaceLease(lease_id(newest.no, newest.tag), newest.owner, made_at, deadline, granted, granted - held)
        return len(holding), lease


# partitions


@answers(q.ListPartitions)
def list_partitions(snapshot: Snapshot, query: q.ListPartitions) -> Page[PartitionRow]:
    partitions = islice(_all_partitions(snapshot.session, query), query.limit)
    return page(partitions, query.limit, lambda row: (row.queue, row.partition))


def _all_partitions(session: Session, query: q.ListPartitions) -> Iterator[PartitionRow]:
    after = query.after
    if query.queue is not None:
        owner = catalog.queue(session, query.queue)
        yield from _partitions(session, owner, _furthest(session, [owner])[0], _after(after), query.limit)
        return
    last = catalog.find_queue(session, after[0]) if after is not None else None
    if last is not None:
        yield from _partitions(session, last, _furthest(session, [last])[0], _after(after), query.limit)
    queues = catalog.queues(session, after=after[0] if after is not None else "", page=_batch_size(query.limit))
    for batch in _batches(queues, _batch_size(query.limit)):
        for queue, group in zip(batch, _furthest(session, batch), strict=True):
            yield from _partitions(session, queue, group, "", query.limit)


def _after(after: tuple[str, str] | None) -> str:
    return after[1] if after is not None else ""


def _furthest(session: Session, queues: list[QueueRow]) -> list[GroupStats | None]:
    """The group with the largest lag of each queue."""
    return [stats.furthest_behind for stats in queue_stats(session, queues)]


def _partitions(
    session: Session, queue: QueueRow, furthest: GroupStats | None, after: str, limit: int | None
) -> Iterator[PartitionRow]:
    group = catalog.find_group(session, queue, furthest.group) if furthest is not None else None
    leased: dict[int, int] = {}
    if group is not None and furthest is not None and furthest.leases:
        for (_, lane), held in leased_by_lane(session, group.id).items():
            leased[lane] = leased.get(lane, 0) + held
    size = min(_PARTITIONS, limit or _PARTITIONS)
    where = {"queue": queue.id, "grp": group.id if group is not None else 0, "limit": size}
    while True:
        rows: dict[int, PartitionRow] = {}
        for row in session.rows("partition_lanes", {**where, "after": after}):
            if row[0] not in rows:
                rows[row[0]] = PartitionRow(queue.name, row[1], row[2])
                rows[row[0]].scheduled, rows[row[0]].dead = row[11:]
                rows[row[0]].pending += row[11]
            _add_lane(rows[row[0]], row, leased)
        yield from rows.values()
        if len(rows) < size:
            return
        after = next(reversed(rows.values())).partition


def _add_lane(partition: PartitionRow, row: Row, leased: dict[int, int]) -> None:
    _, _, _, lane, head, start, start_at, newest_at, done, held, dead = row[:11]
    if lane is None:
        return
    stored = head - start
    partition.messages += stored
    if stored:
        partition.oldest_at = min(start_at, partition.oldest_at or start_at)
        partition.newest_at = max(newest_at or start_at, partition.newest_at or 0)
    if done is None:
        partition.pending += stored
        return
    lag, processing = head - done + held, leased.get(lane, 0)
    partition.pending += lag - processing
    partition.processing += processing
    partition.completed += max(0, stored - lag - dead)
