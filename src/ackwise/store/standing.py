"""How far groups have come: over their queue, in each partition, and what that says about the queue itself."""

from __future__ import annotations

import msgspec

from ackwise.core import queries as q
from ackwise.core.ids import lease_id
from ackwise.core.spans import Lease
from ackwise.store.session import Row, Session
from ackwise.store.turn import catalog, reading
from ackwise.store.turn.catalog import GroupRow, QueueRow
from ackwise.store.turn.context import lease_from


def list_groups(session: Session, query: q.ListGroups) -> list[q.GroupStats]:
    query.check()
    return [_group_stats(session, queue, group) for queue, group in _groups(session, query.queue, query.group)]


def _groups(session: Session, queue: str | None, name: str | None) -> list[tuple[QueueRow, GroupRow]]:
    """Groups with their queues; of one queue or of all, all of them or those of one name."""
    owners = _queues(session, queue)
    if name is not None:
        named = [(owner, catalog.find_group(session, owner, name)) for owner in owners]
        return [(owner, group) for owner, group in named if group is not None]
    return [
        (owner, catalog.group_from(row))
        for owner in owners
        for row in session.rows("groups_of_queue", {"queue": owner.id})
    ]


def _queues(session: Session, name: str | None) -> list[QueueRow]:
    if name is not None:
        return [catalog.queue(session, name)]
    return [catalog.queue_from(row) for row in session.rows("queues_living", {"ns": None, "task": None})]


def _group_stats(session: Session, queue: QueueRow, group: GroupRow) -> q.GroupStats:
    where = {"queue": queue.id, "grp": group.id}
    totals = session.row("group_totals", where)
    subscription = session.row("group_subscription", {"id": group.id})
    assert totals is not None
    assert subscription is not None
    leases = [lease_from(row) for row in session.rows("leases_of_group", {"grp": group.id})]
    acked, dead, skipped, expired, held, unread, partitions, behind = (int(n) for n in totals[:8])
    oldest = session.row("oldest_unfinished", where) if held or unread else None
    return q.GroupStats(
        queue=queue.name,
        group=group.name,
        acked=acked,
        dead=dead,
        skipped=skipped,
        expired=expired,
        held=held,
        unread=unread,
        leases=len(leases),
        oldest_unfinished_at=oldest[0] if oldest else None,
        members=sorted({lease.owner for lease in leases}),
        leased=sum(_leased(session, group.id).values()) if leases else 0,
        partitions=partitions,
        partitions_behind=behind,
        settled_at=totals[8],
        mode=subscription[0],
        from_at=subscription[1],
        created_at=group.created_at,
    )


def _leased(session: Session, grp: int) -> dict[tuple[int, int], int]:
    """How much each lease of a group holds in each lane."""
    return {(no, lane): int(held) for no, lane, held in session.rows("spans_leased", {"grp": grp})}


def stats(session: Session, query: q.QueueStats) -> q.Stats:
    query.check()
    return _stats(session, catalog.queue(session, query.queue))


def list_stats(session: Session, query: q.ListStats) -> list[q.QueueSummary]:
    query.check()
    rows = session.rows("queues_living", {"ns": query.namespace, "task": query.task})
    return [q.QueueSummary(catalog.info(queue), _stats(session, queue)) for queue in map(catalog.queue_from, rows)]


def _stats(session: Session, queue: QueueRow) -> q.Stats:
    totals = session.row("queue_totals", {"queue": queue.id})
    scheduled = session.row("scheduled_count", {"queue": queue.id})
    dead = session.row("dead_of_queue", {"queue": queue.id})
    assert totals is not None
    assert scheduled is not None
    assert dead is not None
    groups = list_groups(session, q.ListGroups(queue=queue.name))
    return q.Stats(queue.name, totals[0], totals[1], int(totals[2] or 0), scheduled[0], dead[0], groups)


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


def list_places(session: Session, query: q.ListPlaces) -> list[q.Place]:
    query.check()
    found = []
    for queue, group in _groups(session, query.queue, query.group):
        holders = _Holders(session, group.id)
        for lanes in _by_partition(session, queue, group):
            place = _place(queue, group, lanes)
            if query.unfinished_since is None or _within(place.oldest_unfinished_at, query.unfinished_since):
                place.leases, place.lease = holders.of([lane.lane for lane in lanes])
                if query.last_done:
                    _add_last_done(session, place, lanes)
                found.append(place)
    return found


def _within(at: int | None, bound: int) -> bool:
    return at is not None and at <= bound


def _by_partition(session: Session, queue: QueueRow, group: GroupRow) -> list[list[_LaneRow]]:
    parts: dict[int, list[_LaneRow]] = {}
    for row in session.rows("places_of_group", {"queue": queue.id, "grp": group.id}):
        parts.setdefault(row[0], []).append(_LaneRow(*row))
    return list(parts.values())


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


def list_partitions(session: Session, query: q.ListPartitions) -> list[q.PartitionRow]:
    query.check()
    return [row for queue in _queues(session, query.queue) for row in _partitions(session, queue)]


def _partitions(session: Session, queue: QueueRow) -> list[q.PartitionRow]:
    furthest = _stats(session, queue).furthest_behind
    group = catalog.find_group(session, queue, furthest.group) if furthest is not None else None
    leased: dict[int, int] = {}
    if group is not None:
        for (_, lane), held in _leased(session, group.id).items():
            leased[lane] = leased.get(lane, 0) + held
    rows: dict[int, q.PartitionRow] = {}
    for row in session.rows("partition_lanes", {"queue": queue.id, "grp": group.id if group is not None else 0}):
        _add_lane(rows.setdefault(row[0], q.PartitionRow(queue.name, row[1], row[2])), row, leased)
    for part, count in session.rows("scheduled_by_part", {"queue": queue.id}):
        rows[part].scheduled = count
        rows[part].pending += count
    for part, count in session.rows("dead_by_part", {"queue": queue.id}):
        rows[part].dead = count
    return list(rows.values())


def _add_lane(partition: q.PartitionRow, row: Row, leased: dict[int, int]) -> None:
    _, _, _, lane, head, start, start_at, newest_at, done, held, dead = row
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
