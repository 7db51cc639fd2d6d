"""Queues, partitions, lanes, groups: find, create, configure, delete."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from ackwise.core.answers import Counted, QueueInfo
from ackwise.core.commands import ConfigureGroup, ConfigureQueue, DeleteGroup, DeleteQueue, PauseQueue, Version
from ackwise.core.errors import BadInput, GroupExists, QueueExists, UnknownGroup, UnknownPartition, UnknownQueue
from ackwise.core.ids import GroupId, LaneId, uuid_text
from ackwise.core.policy import GroupPolicy, Order, QueuePolicy, parse_policy
from ackwise.core.spans import Lane
from ackwise.core.versions import check_version, group_version, queue_version
from ackwise.engine import cursors
from ackwise.engine.ports import Outdated, Row, Session
from ackwise.engine.turn import Turn

NOTHING_STORED = 1 << 62
"""`start_at` of an empty lane: later than any message, so that sweeps skip the lane."""


class QueueRow(msgspec.Struct, frozen=True):
    id: int
    name: str
    ns: str
    task: str
    policy: QueuePolicy
    order: Order
    """The order in force: the policy's own, or the default for its exclusivity."""
    paused: int
    created_at: int


class GroupRow(msgspec.Struct, frozen=True):
    id: GroupId
    queue: int
    name: str
    policy: GroupPolicy
    overrides: bool
    """Whether the group's policy changes the queue's policy."""
    created_at: int


class LaneRef(msgspec.Struct):
    """A lane that a push appends to."""

    part: int
    part_uuid: str
    part_name: str
    lane: LaneId
    head: int


@lru_cache(maxsize=4096)
def queue_policy(text: str) -> tuple[QueuePolicy, Order]:
    """A stored policy and the order in force."""
    policy = msgspec.json.decode(text, type=QueuePolicy)
    return policy, policy.effective_order


@lru_cache(maxsize=4096)
def _group_policy(text: str) -> tuple[GroupPolicy, bool]:
    """A stored policy, and whether it has any field."""
    policy = msgspec.json.decode(text, type=GroupPolicy)
    return policy, policy != GroupPolicy()


def queue_from(row: Row) -> QueueRow:
    return QueueRow(row[0], row[1], row[2], row[3], *queue_policy(row[4]), row[5], row[6])


def group_from(row: Row) -> GroupRow:
    return GroupRow(row[0], row[1], row[2], *_group_policy(row[3]), row[4])


def group_and_queue_from(row: Row) -> tuple[GroupRow, QueueRow]:
    """A row of `group_by_id`."""
    return group_from(row), queue_from(row[5:])


def policy_in_force(queue: QueueRow, group: GroupRow) -> QueuePolicy:
    """The policy of a group in its queue."""
    return group.policy.over(queue.policy) if group.overrides else queue.policy


PAGE = 500
"""Queues that a loop over all queues reads per statement."""


def queue_page(session: Session, ns: str | None, task: str | None, after: str, limit: int) -> list[Row]:
    """Rows of existing queues by name, after the name `after`."""
    where = {"after": after, "limit": limit}
    if ns is not None:
        return session.rows("queues_of_ns", {**where, "ns": ns, "task": task})
    if task is not None:
        return session.rows("queues_of_task", {**where, "task": task})
    return session.rows("queues_page", where)


def queues(
    session: Session,
    ns: str | None = None,
    task: str | None = None,
    *,
    after: str = "",
    limit: int | None = None,
    page: int = PAGE,
) -> Iterator[QueueRow]:
    """Existing queues by name, read page by page. Without a `limit` all of them."""
    left = limit
    while left is None or left > 0:
        size = page if left is None else min(page, left)
        rows = queue_page(session, ns, task, after, size)
        yield from map(queue_from, rows)
        if len(rows) < size:
            return
        after = rows[-1][1]
        left = None if left is None else left - len(rows)


def dedupe_windows(session: Session) -> tuple[float, float] | None:
    """The shortest and the longest dedupe window of all queues, in seconds. None without queues."""
    row = session.row("dedupe_windows")
    assert row is not None
    known = [float(value) for value in row[:2] if value is not None]
    if row[2]:
        known.append(QueuePolicy().dedupe_seconds)
    return (min(known), max(known)) if known else None


def find_queue(session: Session, name: str) -> QueueRow | None:
    row = session.row("queue_by_name", {"name": name})
    return queue_from(row) if row else None


def queue(session: Session, name: str) -> QueueRow:
    known = find_queue(session, name)
    if known is None:
        raise UnknownQueue(f"there is no queue {name!r}; push to it or create it first", queue=name)
    return known


def queue_of_id(session: Session, number: int) -> QueueRow | None:
    row = session.row("queue_by_id", {"id": number})
    return queue_from(row) if row else None


def ensure_queue(turn: Turn, name: str, policy: QueuePolicy | None) -> QueueRow:
    """The queue, created with `policy` if it does not exist. Without a policy a missing queue raises `UnknownQueue`."""
    known = find_queue(turn.session, name)
    if known is not None or policy is None:
        return known or queue(turn.session, name)
    ns, task = [*name.split(".", 2), ""][:2] if "." in name else ("", "")
    _insert_queue(turn, name, ns, task, policy)
    return queue(turn.session, name)


def _insert_queue(turn: Turn, name: str, ns: str, task: str, policy: QueuePolicy) -> bool:
    """Create a queue. False if another turn created it first."""
    fields = {
        "name": name,
        "ns": ns,
        "task": task,
        "policy": msgspec.json.encode(policy).decode(),
        "created_at": turn.wall,
    }
    return turn.session.row("queue_insert", fields) is not None


def info(row: QueueRow, *, created: bool = False) -> QueueInfo:
    policy = {f: getattr(row.policy, f) for f in row.policy.__struct_fields__}
    plain = msgspec.to_builtins(policy)
    return QueueInfo(row.name, row.id, row.ns, row.task, plain, bool(row.paused), row.created_at, created)


def configure_queue(turn: Turn, command: ConfigureQueue) -> QueueInfo:
    name = command.queue
    known = find_queue(turn.session, name)
    if known and command.must_be_new:
        raise QueueExists(f"queue {name!r} exists already; configure it instead", queue=name)
    if known:
        turn.session.lock_queue(known.id)
        known = find_queue(turn.session, name)
    if command.version is not msgspec.UNSET:
        _check_queue(known or queue(turn.session, name), command.version)
    old = command.create if known is None or command.replace else known.policy
    policy = old.merged(command.policy) if command.policy else parse_policy(msgspec.to_builtins(old))
    if known is None:
        if not _insert_queue(turn, name, command.namespace or "", command.task or "", policy):
            raise Outdated(f"another turn created queue {name!r}")
    else:
        turn.session.run(
            "queue_update",
            {
                "id": known.id,
                "policy": msgspec.json.encode(policy).decode(),
                "ns": known.ns if command.namespace is None else command.namespace,
                "task": known.task if command.task is None else command.task,
            },
        )
        if _ready_rules(policy) != _ready_rules(known.policy):
            turn.session.lock_queue_parts(known.id)
            turn.session.run("cursors_look_again", {"queue": known.id, "now": turn.now})
            turn.wake(name, cursors.WAKE_ALL)
            turn.announce(name)
    stored = queue(turn.session, name)
    answer = info(stored, created=known is None)
    if command.partition is not None:
        partition_id = ensure_lane(turn, stored, command.partition, 0).part_uuid
        return msgspec.structs.replace(answer, partition_id=partition_id)
    return answer


def _check_queue(row: QueueRow, version: Version) -> None:
    """Raise `PreconditionFailed` unless the queue has the version."""
    if version is not msgspec.UNSET:
        check_version(version, queue_version(info(row)), f"queue {row.name!r}")


def _ready_rules(policy: QueuePolicy) -> tuple[object, ...]:
    """The policy fields that decide when a lane is ready."""
    return policy.delay_seconds, policy.window_seconds, policy.effective_order, policy.exclusivity


def pause_queue(turn: Turn, command: PauseQueue) -> QueueInfo:
    known = queue(turn.session, command.queue)
    turn.session.lock_queue(known.id)
    _check_queue(queue(turn.session, command.queue), command.version)
    turn.session.run("queue_pause", {"id": known.id, "paused": int(command.paused)})
    if not command.paused:
        turn.wake(known.name, 1)
        turn.announce(known.name)
    return info(queue(turn.session, command.queue))


def delete_queue(turn: Turn, command: DeleteQueue) -> int:
    """Free the name and void the leases of a queue. Sweeps remove its rows in chunks."""
    known = queue(turn.session, command.queue)
    turn.session.lock_queue(known.id)
    _check_queue(queue(turn.session, command.queue), command.version)
    for row in turn.session.rows("groups_of_queue", {"queue": known.id}):
        void_leases(turn, row[0])
    return turn.session.run("queue_bury", {"id": known.id, "now": turn.wall})


def void_leases(turn: Turn, grp: GroupId) -> None:
    turn.session.lock_group(grp, alone=True)
    for row in turn.session.rows("leases_of_group", {"grp": grp}):
        lease = turn.lease(row[0])
        if lease is not None and lease.ended_at is None:
            lease.lost = lease.granted
            turn.end_lease(lease, "void")


# lanes


def ensure_lane(turn: Turn, owner: QueueRow, partition: str, prio: int) -> LaneRef:
    """The lane of a partition and priority, created if needed. The turn locks the partition and then reads the head."""
    session = turn.session
    part = session.row("part_by_name", {"queue": owner.id, "name": partition}) or _add_part(turn, owner, partition)
    if not turn.memory.alone:
        session.lock_parts([part[0]])
    lane = session.row("lane_of_part", {"part": part[0], "prio": prio}) or _add_lane(turn, owner, part[0], prio)
    return LaneRef(part[0], part[1], partition, lane[0], lane[1])


def _add_part(turn: Turn, owner: QueueRow, partition: str) -> Row:
    turn.session.lock_queue(owner.id)
    turn.session.run("part_insert", {"uuid": uuid_text(turn.new_uuid()), "queue": owner.id, "name": partition})
    row = turn.session.row("part_by_name", {"queue": owner.id, "name": partition})
    assert row is not None
    return row


def _add_lane(turn: Turn, owner: QueueRow, part: int, prio: int) -> Row:
    turn.session.lock_queue(owner.id)
    made = turn.session.row("lane_insert", {"part": part, "queue": owner.id, "prio": prio, "start_at": NOTHING_STORED})
    if made:
        turn.session.run("cursors_for_lane", {"lane": made[0], "part": part, "prio": prio, "queue": owner.id})
    row = turn.session.row("lane_of_part", {"part": part, "prio": prio})
    assert row is not None
    return row


def named_lanes(session: Session, owner: QueueRow, lanes: dict[int, int]) -> list[Lane]:
    """The lanes of a command that maps lanes to seqs.

    The turn reads the heads before it locks the partitions: heads only rise.
    """
    named = []
    for number, seq in lanes.items():
        row = session.row("lane_by_id", {"id": number})
        if row is None or row[2] != owner.id:
            raise BadInput(f"queue {owner.name!r} has no lane {number}")
        lane = Lane(*row)
        if seq > lane.head:
            raise BadInput(f"lane {number} of queue {owner.name!r} ends at {lane.head}, before {seq}")
        named.append(lane)
    return named


# groups


def find_group(session: Session, owner: QueueRow, name: str) -> GroupRow | None:
    row = session.row("group_by_name", {"queue": owner.id, "name": name})
    return group_from(row) if row else None


def group(session: Session, owner: QueueRow, name: str) -> GroupRow:
    known = find_group(session, owner, name)
    if known is None:
        raise UnknownGroup(f"queue {owner.name!r} has no group {name!r}", queue=owner.name, group=name)
    return known


def ensure_group(
    turn: Turn,
    owner: QueueRow,
    name: str,
    start: str | int,
    policy: GroupPolicy | None = None,
    *,
    since: int | None = None,
) -> GroupRow:
    """The group, created at `start` if it does not exist: `all`, `new` or an instant.

    `since` is the instant of an earlier turn at which a group with the start `new` began. Later messages are new.
    """
    known = find_group(turn.session, owner, name)
    if known is not None:
        return known
    session = turn.session
    session.lock_queue(owner.id)
    if (known := find_group(session, owner, name)) is not None:
        return known
    created_at = turn.wall if since is None or start != "new" else since
    fields = {"queue": owner.id, "name": name, "created_at": created_at, **_start(start)}
    text = msgspec.json.encode(policy or GroupPolicy()).decode()
    session.lock_queue_parts(owner.id)
    made = session.row("group_insert", {**fields, "policy": text})
    if made:
        session.run(
            "cursors_for_group",
            # One microsecond ago: lanes that this turn serves sort behind the others.
            {"grp": made[0], "queue": owner.id, "at_end": int(start == "new"), "ready_at": turn.now - 1},
        )
        if not isinstance(start, str):
            for row in session.rows("cursors_of_group", {"grp": made[0]}):
                cursors.move_cursor(
                    turn, cursors.cursor_from(row), cursors.seq_at(turn.session, row[0], row[17], row[16], start)
                )
        elif created_at < turn.wall:
            _include_newer(turn, owner, made[0], created_at)
    return group(session, owner, name)


def _include_newer(turn: Turn, owner: QueueRow, grp: GroupId, after: int) -> None:
    """Move the cursors of a new group from the end of their lanes to the first message stored after an instant."""
    for lane, start, head in turn.session.rows("lanes_newer", {"queue": owner.id, "after": after}):
        cursor = turn.cursor(lane, grp)
        assert cursor is not None
        cursors.move_cursor(turn, cursor, cursors.seq_at(turn.session, lane, start, head, after + 1))


def _start(start: str | int) -> dict[str, str | int | None]:
    """The columns that store a group's start."""
    return {"mode": start, "from_at": None} if isinstance(start, str) else {"mode": "from", "from_at": start}


def configure_group(turn: Turn, command: ConfigureGroup) -> Counted:
    owner = queue(turn.session, command.queue)
    known = find_group(turn.session, owner, command.group)
    if known is not None and command.must_be_new is True:
        raise GroupExists(
            f"queue {owner.name!r} has a group {known.name!r} already", queue=owner.name, group=known.name
        )
    if command.version is not msgspec.UNSET:
        check_group(turn, known or group(turn.session, owner, command.group), command.version)
    if known is None:
        ensure_group(turn, owner, command.group, command.start, command.policy)
        return Counted(1)
    if command.policy is not None:
        text = msgspec.json.encode(command.policy).decode()
        turn.session.run("group_policy", {"id": known.id, "policy": text})
    if command.restart:
        turn.session.run("group_start", {"id": known.id, **_start(command.start)})
    return Counted(1)


def version_of(session: Session, group: GroupRow) -> str:
    """Version of a group."""
    row = session.row("group_starts", {"grp": group.id})
    assert row is not None
    return group_version(group.id, group.policy, (row[0], row[1]), int(row[2]))


def check_group(turn: Turn, group: GroupRow, version: Version) -> None:
    """Raise `PreconditionFailed` unless the group has the version. The turn holds the lock on the queue."""
    if version is not msgspec.UNSET:
        check_version(version, version_of(turn.session, group), f"group {group.name!r}")


def delete_group(turn: Turn, command: DeleteGroup) -> int:
    """Delete a group with its cursors and leases. Its dead letters stay and can be replayed.

    The number of statements depends only on the group's live leases, not on its lanes.
    """
    owner = queue(turn.session, command.queue)
    known = group(turn.session, owner, command.group)
    turn.session.lock_queue(owner.id)
    turn.session.lock_group(known.id, alone=True)
    turn.session.lock_queue_parts(owner.id)
    check_group(turn, known, command.version)
    void_leases(turn, known.id)
    for statement in ("spans_delete_group", "dropped_forget_group"):
        turn.session.run(statement, {"grp": known.id})
    lanes = turn.session.run("cursors_delete", {"grp": known.id})
    turn.session.run("group_delete", {"id": known.id})
    return lanes


def find_part(session: Session, owner: QueueRow, partition: str) -> int | None:
    row = session.row("part_by_name", {"queue": owner.id, "name": partition})
    return int(row[0]) if row else None


def part_id(session: Session, owner: QueueRow, partition: str) -> int:
    part = find_part(session, owner, partition)
    if part is None:
        raise UnknownPartition(
            f"queue {owner.name!r} has no partition {partition!r}", queue=owner.name, partition=partition
        )
    return part


def part_names(session: Session, parts: set[int]) -> dict[int, tuple[str, str]]:
    """(name, uuid) by partition."""
    names = {}
    for part in parts:
        row = session.row("part_by_id", {"id": part})
        if row:
            names[part] = (row[1], row[2])
    return names
