"""Queues, partitions, lanes and groups: found, made and changed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from ackwise.core import limits
from ackwise.core.answers import QueueInfo
from ackwise.core.commands import ConfigureGroup, ConfigureQueue, DeleteGroup, DeleteQueue, PauseQueue
from ackwise.core.errors import BadInput, QueueExists, UnknownGroup, UnknownPartition, UnknownQueue
from ackwise.core.ids import uuid_text
from ackwise.core.policy import GroupPolicy, QueuePolicy, parse_policy
from ackwise.core.spans import Lane
from ackwise.store.session import Outdated, Row, Session
from ackwise.store.turn import places
from ackwise.store.turn.context import Turn

NOTHING_STORED = 1 << 62
"""A lane's `start_at` while it is empty: later than any message, so that no sweep looks at it."""


class QueueRow(msgspec.Struct, frozen=True):
    id: int
    name: str
    ns: str
    task: str
    policy: QueuePolicy
    paused: int
    created_at: int


class GroupRow(msgspec.Struct, frozen=True):
    id: int
    queue: int
    name: str
    policy: GroupPolicy
    created_at: int


class LaneRef(msgspec.Struct):
    """A lane that is being written to."""

    part: int
    part_uuid: str
    part_name: str
    lane: int
    head: int


@lru_cache(maxsize=4096)
def queue_policy(text: str) -> QueuePolicy:
    return msgspec.json.decode(text, type=QueuePolicy)


@lru_cache(maxsize=4096)
def _group_policy(text: str) -> GroupPolicy:
    return msgspec.json.decode(text, type=GroupPolicy)


def queue_from(row: Row) -> QueueRow:
    return QueueRow(row[0], row[1], row[2], row[3], queue_policy(row[4]), row[5], row[6])


def group_from(row: Row) -> GroupRow:
    return GroupRow(row[0], row[1], row[2], _group_policy(row[3]), row[4])


PAGE = 500
"""Queues that a loop over all queues reads at once."""


def queue_page(session: Session, ns: str | None, task: str | None, after: str, limit: int) -> list[Row]:
    """Rows of living queues in the order of their names, behind `after`."""
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
    """Living queues by name. Without a `limit` all living queues, read page by page."""
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
    """The shortest and the longest dedupe window of all living queues, in seconds; None without queues."""
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
    found = find_queue(session, limits.name(name, "queue"))
    if found is None:
        raise UnknownQueue(f"there is no queue {name!r}; push to it or create it first", queue=name)
    return found


def queue_of_id(session: Session, number: int) -> QueueRow | None:
    row = session.row("queue_by_id", {"id": number})
    return queue_from(row) if row else None


def ensure_queue(turn: Turn, name: str, policy: QueuePolicy | None) -> QueueRow:
    """The queue, made with `policy` when it does not exist; without one it is refused."""
    found = find_queue(turn.session, name)
    if found is not None or policy is None:
        return found or queue(turn.session, name)
    ns, task = [*name.split(".", 2), ""][:2] if "." in name else ("", "")
    _insert_queue(turn, name, ns, task, policy)
    return queue(turn.session, name)


def _insert_queue(turn: Turn, name: str, ns: str, task: str, policy: QueuePolicy) -> bool:
    """False when somebody else made it first."""
    fields = {
        "name": name,
        "ns": ns,
        "task": task,
        "policy": msgspec.json.encode(policy).decode(),
        "created_at": turn.now,
    }
    return turn.session.row("queue_insert", fields) is not None


def info(row: QueueRow, *, created: bool = False) -> QueueInfo:
    policy = {f: getattr(row.policy, f) for f in row.policy.__struct_fields__}
    plain = msgspec.to_builtins(policy)
    return QueueInfo(row.name, row.id, row.ns, row.task, plain, bool(row.paused), row.created_at, created)


def configure_queue(turn: Turn, command: ConfigureQueue) -> QueueInfo:
    name = limits.name(command.queue, "queue")
    for what, text in (("namespace", command.namespace), ("task", command.task)):
        if text is not None:
            limits.tag(text, what)
    if command.partition is not None:
        limits.name(command.partition, "partition")
    found = find_queue(turn.session, name)
    if found and command.must_be_new:
        raise QueueExists(f"queue {name!r} exists already; configure it instead", queue=name)
    if found:
        turn.session.lock_queue(found.id)
        found = find_queue(turn.session, name)
    old = command.create if found is None or command.replace else found.policy
    policy = old.merged(command.policy) if command.policy else parse_policy(msgspec.to_builtins(old))
    if found is None:
        if not _insert_queue(turn, name, command.namespace or "", command.task or "", policy):
            raise Outdated(f"queue {name!r} was made by somebody else meanwhile")
    else:
        turn.session.run(
            "queue_update",
            {
                "id": found.id,
                "policy": msgspec.json.encode(policy).decode(),
                "ns": found.ns if command.namespace is None else command.namespace,
                "task": found.task if command.task is None else command.task,
            },
        )
        if _ready_rules(policy) != _ready_rules(found.policy):
            turn.session.lock_queue_parts(found.id)
            turn.session.run("cursors_look_again", {"queue": found.id, "now": turn.now})
            turn.wake(name, places.WAKE_ALL)
            turn.announce(name)
    made = queue(turn.session, name)
    answer = info(made, created=found is None)
    if command.partition is not None:
        answer.partition_id = ensure_lane(turn, made, command.partition, 0).part_uuid
    return answer


def _ready_rules(policy: QueuePolicy) -> tuple[object, ...]:
    """What decides when a lane is ready."""
    return policy.delay_seconds, policy.window_seconds, policy.effective_order, policy.exclusivity


def pause_queue(turn: Turn, command: PauseQueue) -> QueueInfo:
    found = queue(turn.session, command.queue)
    turn.session.run("queue_pause", {"id": found.id, "paused": int(command.paused)})
    if not command.paused:
        turn.wake(found.name, 1)
        turn.announce(found.name)
    return info(queue(turn.session, command.queue))


def delete_queue(turn: Turn, command: DeleteQueue) -> int:
    """Free the name and void its leases now; its rows go in chunks with the sweeps."""
    found = queue(turn.session, command.queue)
    turn.session.lock_queue(found.id)
    for row in turn.session.rows("groups_of_queue", {"queue": found.id}):
        void_leases(turn, row[0])
    return turn.session.run("queue_bury", {"id": found.id, "now": turn.now})


def void_leases(turn: Turn, grp: int) -> None:
    turn.session.lock_group(grp, alone=True)
    for row in turn.session.rows("leases_of_group", {"grp": grp}):
        lease = turn.lease(row[0])
        if lease is not None and lease.ended_at is None:
            lease.lost = lease.granted
            turn.end_lease(lease, "void")


# lanes


def ensure_lane(turn: Turn, owner: QueueRow, partition: str, prio: int) -> LaneRef:
    """The lane to push to, made when it is not there. Its head is read after its partition is locked."""
    session = turn.session
    part = session.row("part_by_name", {"queue": owner.id, "name": partition}) or _add_part(turn, owner, partition)
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


# groups


def named_lanes(session: Session, owner: QueueRow, lanes: dict[int, int]) -> list[Lane]:
    """Lanes that a command names a place in. Heads read before their partitions are locked will do: they only rise."""
    if not isinstance(lanes, dict):
        raise BadInput(f"lanes must map lanes to seqs, not be {type(lanes).__name__}")
    found = []
    for number, seq in lanes.items():
        row = session.row("lane_by_id", {"id": limits.count(number, "lane", most=1 << 62)})
        if row is None or row[2] != owner.id:
            raise BadInput(f"queue {owner.name!r} has no lane {number}")
        lane = Lane(*row)
        if limits.count(seq, "seq", least=0, most=1 << 62) > lane.head:
            raise BadInput(f"lane {number} of queue {owner.name!r} ends at {lane.head}, before {seq}")
        found.append(lane)
    return found


def find_group(session: Session, owner: QueueRow, name: str) -> GroupRow | None:
    row = session.row("group_by_name", {"queue": owner.id, "name": name})
    return group_from(row) if row else None


def group(session: Session, owner: QueueRow, name: str) -> GroupRow:
    found = find_group(session, owner, limits.name(name, "group"))
    if found is None:
        raise UnknownGroup(f"queue {owner.name!r} has no group {name!r}", queue=owner.name, group=name)
    return found


def ensure_group(
    turn: Turn, owner: QueueRow, name: str, start: str | int, policy: GroupPolicy | None = None
) -> GroupRow:
    """The group; a new one stands at the start, at the end, or at an instant."""
    found = find_group(turn.session, owner, name)
    if found is not None:
        return found
    session = turn.session
    session.lock_queue(owner.id)
    if (found := find_group(session, owner, name)) is not None:
        return found
    fields = {"queue": owner.id, "name": name, "created_at": turn.now, **_start(start)}
    text = msgspec.json.encode(policy or GroupPolicy()).decode()
    session.lock_queue_parts(owner.id)
    made = session.row("group_insert", {**fields, "policy": text})
    if made:
        session.run(
            "cursors_for_group",
            # A moment ago: a lane that is served in this very turn goes behind those that wait.
            {"grp": made[0], "queue": owner.id, "at_end": int(start == "new"), "ready_at": turn.now - 1},
        )
        if not isinstance(start, str):
            for row in session.rows("cursors_of_group", {"grp": made[0]}):
                places.move_cursor(
                    turn, places.cursor_from(row), places.seq_at(turn.session, row[0], row[17], row[16], start)
                )
    return group(session, owner, name)


def _start(start: str | int) -> dict[str, str | int | None]:
    """A start as it is stored."""
    return {"mode": start, "from_at": None} if isinstance(start, str) else {"mode": "from", "from_at": start}


def configure_group(turn: Turn, command: ConfigureGroup) -> GroupRow:
    owner = queue(turn.session, command.queue)
    name = limits.name(command.group, "group")
    limits.start(command.start)
    if command.policy is not None:
        command.policy.check()
    known = find_group(turn.session, owner, name)
    if known is None:
        return ensure_group(turn, owner, name, command.start, command.policy)
    if command.policy is not None:
        text = msgspec.json.encode(command.policy).decode()
        turn.session.run("group_policy", {"id": known.id, "policy": text})
    if command.restart:
        turn.session.run("group_start", {"id": known.id, **_start(command.start)})
    return group(turn.session, owner, name)


def delete_group(turn: Turn, command: DeleteGroup) -> int:
    """The group's places and leases go; its dead letters stay and can be replayed."""
    owner = queue(turn.session, command.queue)
    found = group(turn.session, owner, command.group)
    turn.session.lock_queue(owner.id)
    turn.session.lock_group(found.id, alone=True)
    turn.session.lock_queue_parts(owner.id)
    void_leases(turn, found.id)
    rows = turn.session.rows("cursors_of_group", {"grp": found.id})
    for row in rows:
        turn.session.run("spans_delete_cursor", {"lane": row[0], "grp": found.id})
        turn.session.run("dropped_forget_cursor", {"lane": row[0], "grp": found.id})
    turn.session.run("cursors_delete", {"grp": found.id})
    turn.session.run("group_delete", {"id": found.id})
    return len(rows)


def find_part(session: Session, owner: QueueRow, partition: str) -> int | None:
    row = session.row("part_by_name", {"queue": owner.id, "name": partition})
    return int(row[0]) if row else None


def part_id(session: Session, owner: QueueRow, partition: str) -> int:
    found = find_part(session, owner, limits.name(partition, "partition"))
    if found is None:
        raise UnknownPartition(
            f"queue {owner.name!r} has no partition {partition!r}", queue=owner.name, partition=partition
        )
    return found


def part_names(session: Session, parts: set[int]) -> dict[int, tuple[str, str]]:
    """(name, uuid) of partitions."""
    found = {}
    for part in parts:
        row = session.row("part_by_id", {"id": part})
        if row:
            found[part] = (row[1], row[2])
    return found
