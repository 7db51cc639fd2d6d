"""How far groups have come: over their queue, in each partition, and what that says about the queue itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import TypeVar

import msgspec

from ackwise.core import queries as q
from ackwise.core.ids import lease_id
from ackwise.core.spans import Lease
from ackwise.store.counts import group_stats, queue_stats
from ackwise.store.reads import page
from ackwise.store.session import Row, Session
from ackwise.store.turn import catalog, reading
from ackwise.store.turn.catalog import GroupRow, QueueRow
from ackwise.store.turn.context import lease_from

T = TypeVar("T")


def list_groups(session: Session, query: q.ListGroups) -> q.Page[q.GroupStats]:
    query.check()
    pairs = islice(_groups(session, query.queue, query.group, query.after, _ahead(query.limit)), query.limit)
    found = [row for batch in _batches(pairs) for row in group_stats(session, batch)]
    return page(found, query.limit, lambda row: (row.queue, row.group))


def _batches(rows: Iterable[T], size: int = catalog.PAGE) -> Iterator[list[T]]:
    """Rows of the catalogue that are counted together."""
    left = iter(rows)
    while batch := list(islice(left, size)):
        yield batch


def _ahead(limit: int | None) -> int:
    """How many rows of the catalogue a page reads at once."""
    return max(1, min(catalog.PAGE, limit or catalog.PAGE))


def list_group_names(session: Session, query: q.ListGroupNames) -> q.Page[str]:
    query.check()
    rows = session.rows("group_names", {"after": query.after, "limit": query.limit})
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
        found = catalog.find_group(session, owner, name)
        groups = [found] if found is not None else []
    else:
        groups = [catalog.group_from(row) for row in session.rows("groups_of_queue", {"queue": owner.id})]
    for group in groups:
        if after is None or (owner.name, group.name) > after:
            yield owner, group


def _leased(session: Session, grp: int) -> dict[tuple[int, int], int]:
    """How much each lease of a group holds in each lane."""
    return {(no, lane): int(held) for no, lane, held in session.rows("spans_leased", {"grp": grp})}


def stats(session: Session, query: q.QueueStats) -> q.Stats:
    query.check()
    return queue_stats(session, [catalog.queue(session, query.queue)])[0]


def list_stats(session: Session, query: q.ListStats) -> q.Page[q.QueueSummary]:
    query.check()
    queues = catalog.queues(session, query.namespace, query.task, after=query.after, limit=query.limit)
    found = [
        q.QueueSummary(catalog.info(queue), counted)
        for batch in _batches(queues)
        for queue, counted in zip(batch, queue_stats(session, batch), strict=True)
    ]
    return page(found, query.limit, lambda row: row.info.name)


# places


class _LaneRow(msgspec.Struct):
    """A row of `places_of_group`."""

    part: int
    partition: str
    partition_id: str
    lane: int
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
"""Partitions of a queue that are read together."""


def list_places(session: Session, query: q.ListPlaces) -> q.Page[q.Place]:
    query.check()
    return page(islice(_places(session, query), query.limit), query.limit, _key_of_place)


def _key_of_place(place: q.Place) -> tuple[str, str, str]:
    return place.queue, place.group, place.partition


def _places(session: Session, query: q.ListPlaces) -> Iterator[q.Place]:
    after = query.after
    if after is not None:
        # The group of the page before may have partitions left.
        owner = catalog.find_queue(session, after[0])
        group = catalog.find_group(session, owner, after[1]) if owner is not None else None
        if owner is not None and group is not None:
            yield from _places_of_group(session, query, owner, group, after[2])
    behind = after[:2] if after is not None else None
    for queue, following in _groups(session, query.queue, query.group, behind, _ahead(query.limit)):
        yield from _places_of_group(session, query, queue, following, "")


def _places_of_group(
    session: Session, query: q.ListPlaces, queue: QueueRow, group: GroupRow, after: str
) -> Iterator[q.Place]:
    holders = _Holders(session, group.id)
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
    """The lanes of each partition behind a name."""
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
    """The last partition of a full page; None at the end. A partition without lanes has no row in the page itself."""
    row = session.row("part_at", {"queue": queue.id, "after": after, "offset": size - 1})
    return str(row[0]) if row else None


def _place(queue: QueueRow, group: GroupRow, lanes: list[_LaneRow]) -> q.Place:
    place = q.Place(queue.name, group.name, lanes[0].partition, lanes[0].partition_id)
    for lane in lanes:
        for name in ("acked", "dead", "skipped", "expired", "held", "nacked"):
            setattr(place, name, getattr(place, name) + getattr(lane, name))
        place.unread += lane.head - lane.next
    place.settled_at = max((lane.settled_at for lane in lanes if lane.settled_at is not None), default=None)
    place.last_settled_at = max((lane.last_at for lane in lanes if lane.last_at is not None), default=None)
    place.oldest_unfinished_at = min((lane.oldest_at for lane in lanes if lane.oldest_at is not None), default=None)
    return place


def _add_last_done(session: Session, place: q.Place, lanes: list[_LaneRow]) -> None:
    """The message may have been pruned; what dedupe keeps of it still knows its id."""
    lane = max(lanes, key=lambda lane: (lane.settled_at or 0, lane.undone > lane.first))
    seq = lane.undone - 1
    if seq >= lane.first:
        place.last_done_id, place.last_done_created_at = _named(session, lane.lane, seq)
    newest = max(lanes, key=lambda lane: lane.last_at or 0)
    if newest.last_seq is not None:
        place.last_settled_id, place.last_settled_created_at = _named(session, newest.lane, newest.last_seq)


def _named(session: Session, lane: int, seq: int) -> tuple[str | None, int | None]:
    """A message's id and birth, while anything is kept of the message."""
    segment = reading.segment_with(session, lane, seq)
    if segment is None:
        return None, None
    message = segment.message(seq)
    return message.id, message.created_at


class _Holders:
    """The leases of a group, by the lanes in which they hold something; one loses whole partitions or nothing."""

    def __init__(self, session: Session, grp: int) -> None:
        leases = {row[0]: lease_from(row) for row in session.rows("leases_of_group", {"grp": grp})}
        self._held = _leased(session, grp) if leases else {}
        self._in_lane: dict[int, list[Lease]] = {}
        self._granted: dict[tuple[int, int], int] = {}
        for no, lane in self._held:
            self._in_lane.setdefault(lane, []).append(leases[no])
        for lease in leases.values():
            for lane, lo, hi in lease.granted:
                self._granted[lease.no, lane] = self._granted.get((lease.no, lane), 0) + hi - lo

    def of(self, lanes: list[int]) -> tuple[int, q.PlaceLease | None]:
        """How many leases hold something in these lanes, and the newest of them."""
        holding = {lease.no: lease for lane in lanes for lease in self._in_lane.get(lane, ())}
        if not holding:
            return 0, None
        newest = holding[max(holding)]
        granted = sum(self._granted.get((newest.no, lane), 0) for lane in lanes)
        held = sum(self._held.get((newest.no, lane), 0) for lane in lanes)
        shown = q.PlaceLease(
            lease_id(newest.no, newest.tag), newest.owner, newest.made_at, newest.deadline, granted, granted - held
        )
        return len(holding), shown


# partitions


def list_partitions(session: Session, query: q.ListPartitions) -> q.Page[q.PartitionRow]:
    query.check()
    found: q.Page[q.PartitionRow] = q.Page()
    for row in islice(_all_partitions(session, query), query.limit):
        found.append(row)
    return page(found, query.limit, lambda row: (row.queue, row.partition))


def _all_partitions(session: Session, query: q.ListPartitions) -> Iterator[q.PartitionRow]:
    after = query.after
    if query.queue is not None:
        owner = catalog.queue(session, query.queue)
        yield from _partitions(session, owner, _furthest(session, [owner])[0], _after(after), query.limit)
        return
    last = catalog.find_queue(session, after[0]) if after is not None else None
    if last is not None:
        yield from _partitions(session, last, _furthest(session, [last])[0], _after(after), query.limit)
    queues = catalog.queues(session, after=after[0] if after is not None else "", page=_ahead(query.limit))
    for batch in _batches(queues, _ahead(query.limit)):
        for queue, group in zip(batch, _furthest(session, batch), strict=True):
            yield from _partitions(session, queue, group, "", query.limit)


def _after(after: tuple[str, str] | None) -> str:
    return after[1] if after is not None else ""


def _furthest(session: Session, queues: list[QueueRow]) -> list[str | None]:
    """The group of each queue that is furthest behind."""
    behind = [stats.furthest_behind for stats in queue_stats(session, queues)]
    return [group.group if group is not None else None for group in behind]


def _partitions(
    session: Session, queue: QueueRow, furthest: str | None, after: str, limit: int | None
) -> Iterator[q.PartitionRow]:
    group = catalog.find_group(session, queue, furthest) if furthest is not None else None
    leased: dict[int, int] = {}
    if group is not None:
        for (_, lane), held in _leased(session, group.id).items():
            leased[lane] = leased.get(lane, 0) + held
    size = min(_PARTITIONS, limit or _PARTITIONS)
    where = {"queue": queue.id, "grp": group.id if group is not None else 0, "limit": size}
    while True:
        rows: dict[int, q.PartitionRow] = {}
        for row in session.rows("partition_lanes", {**where, "after": after}):
            if row[0] not in rows:
                rows[row[0]] = q.PartitionRow(queue.name, row[1], row[2])
                rows[row[0]].scheduled, rows[row[0]].dead = row[11:]
                rows[row[0]].pending += row[11]
            _add_lane(rows[row[0]], row, leased)
        yield from rows.values()
        if len(rows) < size:
            return
        after = next(reversed(rows.values())).partition


def _add_lane(partition: q.PartitionRow, row: Row, leased: dict[int, int]) -> None:
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
