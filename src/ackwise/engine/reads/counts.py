"""Counts of queues and groups. A few statements count a whole page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ackwise.core.rows import GroupStats, Stats
from ackwise.engine import catalog
from ackwise.engine.catalog import GroupRow, QueueRow
from ackwise.engine.ports import Row, Session

_NO_COUNTS: Row = (0,) * 8 + (None,)


def queue_stats(session: Session, queues: Sequence[QueueRow], now: int | None = None) -> list[Stats]:
    """Counts of each queue and of its groups. Without `now` it does not look for claimable messages."""
    where = _id_list(queue.id for queue in queues)
    lanes = _by_id(session.rows("count_lanes", where))
    scheduled, dead = _by_id(session.rows("count_scheduled", where)), _by_id(session.rows("count_dead", where))
    owners = {queue.id: queue for queue in queues}
    pairs = [(owners[group.queue], group) for group in map(catalog.group_from, session.rows("groups_of_queues", where))]
    groups: dict[str, list[GroupStats]] = {}
    for stats in group_stats(session, pairs, now):
        groups.setdefault(stats.queue, []).append(stats)
    counted = []
    for queue in queues:
        partitions, count, messages, oldest = lanes.get(queue.id, (0, 0, 0, None))
        waiting, letters = scheduled.get(queue.id, (0,))[0], dead.get(queue.id, (0,))[0]
        queue_groups = groups.get(queue.name, [])
        counted.append(Stats(queue.name, partitions, count, int(messages), waiting, letters, queue_groups, oldest))
    return counted


def group_stats(
    session: Session, pairs: Sequence[tuple[QueueRow, GroupRow]], now: int | None = None
) -> list[GroupStats]:
    """Counts of each group over its queue. Without `now` it does not look for claimable messages."""
    if not pairs:
        return []
    where = _id_list(group.id for _, group in pairs)
    counts = _by_id(session.rows("count_groups", where))
    starts = _by_id(session.rows("count_subscriptions", where))
    members: dict[int, dict[str, int]] = {}
    for grp, owner, held in session.rows("count_holders", where):
        members.setdefault(grp, {})[owner] = held
    leased = _by_id(session.rows("count_leased", _id_list(members))) if members else {}
    behind = [grp for grp, row in counts.items() if row[4] or row[5]]
    oldest = _by_id(session.rows("count_oldest", _id_list(behind))) if behind else {}
    claimable = _claimable(session, pairs, behind, now)
    counted = []
    for queue, group in pairs:
        row = counts.get(group.id, _NO_COUNTS)
        acked, dead, skipped, expired, held, unread, partitions, partitions_behind = (int(n) for n in row[:8])
        mode, from_at = starts[group.id]
        owners = members.get(group.id, {})
        counted.append(
            GroupStats(
                queue=queue.name,
                group=group.name,
                acked=acked,
                dead=dead,
                skipped=skipped,
                expired=expired,
                held=held,
                unread=unread,
                leases=sum(owners.values()),
                oldest_unfinished_at=oldest.get(group.id, (None,))[0],
                members=sorted(owners),
                leased=int(leased.get(group.id, (0,))[0]),
                partitions=partitions,
                partitions_behind=partitions_behind,
                settled_at=row[8],
                mode=mode,
                from_at=from_at,
                created_at=group.created_at,
                oldest_claimable_at=claimable.get(group.id, (None,))[0],
                policy=msgspec.to_builtins(group.policy),
            )
        )
    return counted


def _claimable(
    session: Session, pairs: Sequence[tuple[QueueRow, GroupRow]], behind: Iterable[int], now: int | None
) -> dict[int, Row]:
    """Creation time of the oldest claimable message by group. Nothing is claimable in a paused queue."""
    if now is None:
        return {}
    paused = {group.id for queue, group in pairs if queue.paused}
    ready = [grp for grp in behind if grp not in paused]
    return _by_id(session.rows("count_claimable", {**_id_list(ready), "now": now})) if ready else {}


def _id_list(ids: Iterable[int]) -> dict[str, str]:
    return {"ids": msgspec.json.encode(list(ids)).decode()}


def _by_id(rows: Iterable[Row]) -> dict[int, Row]:
    return {row[0]: row[1:] for row in rows}
