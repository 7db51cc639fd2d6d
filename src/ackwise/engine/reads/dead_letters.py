"""Dead letters: lists, counts and kinds of errors."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core import queries as q
from ackwise.core import rows as core_rows
from ackwise.core import validation
from ackwise.core.messages import Message
from ackwise.engine import catalog, segment
from ackwise.engine.ports import Row, Session
from ackwise.engine.reads.queues import ALWAYS, page
from ackwise.engine.reads.registry import Snapshot, answers

DeadQuery = q.ListDead | q.CountDead | q.CountDeadByTime | q.ListDeadKinds


class _Filter:
    """The letters that a query selects: the suffix of its statements, and their parameters."""

    def __init__(self, session: Session, query: DeadQuery) -> None:
        kind = getattr(query, "kind", None)
        self.any_queue = query.queue is None
        self.filtered = any(value is not None for value in (query.group, query.partition, query.reason, kind))
        self.of_kind = kind is not None and not self.any_queue
        self.where: dict[str, Any] = {
            "grp": query.group,
            "part": query.partition,
            "reason": query.reason,
            "after_at": ALWAYS[0] if query.after_at is None else query.after_at,
            "before_at": ALWAYS[1] if query.before_at is None else query.before_at,
        }
        if query.queue is not None:
            owner = catalog.queue(session, query.queue)
            self.where["queue"] = owner.id
            if query.partition is not None:
                self.where["part"] = catalog.find_part(session, owner, query.partition) or _NO_PART
        if not isinstance(query, q.ListDeadKinds):
            self.where["kind"] = kind

    @property
    def suffix(self) -> str:
        """Suffix of the statements that count."""
        return "_all" if self.any_queue else "_of_kind" if self.of_kind else ""

    @property
    def places(self) -> str:
        """The statement that lists ids."""
        if not self.filtered:
            return "dead_newest_all" if self.any_queue else "dead_newest"
        return "dead_of_kind" if self.of_kind else "dead_matching_all" if self.any_queue else "dead_matching"

    def count(self, session: Session) -> int:
        row = session.row(f"dead_count{self.suffix}", self.where)
        return int(row[0]) if row else 0


_NO_PART = -1
"""No partition has this number."""


@answers(q.ListDead)
def list_dead(snapshot: Snapshot, query: q.ListDead) -> core_rows.DeadPage:
    session = snapshot.session
    if query.ids is not None:
        return _named_dead(session, query)
    chosen = _Filter(session, query)
    last_at, last_id = query.after if query.after is not None else (ALWAYS[1], ALWAYS[1])
    limit = min(query.limit, validation.MOST_ROWS)
    place = {"last_at": last_at, "last_id": last_id, "limit": limit + 1, "offset": query.offset}
    where = {**chosen.where, **place, "before_at": min(chosen.where["before_at"], last_at)}
    behind = session.rows(chosen.places, where)
    sizes = _fitting(behind[:limit], validation.ANSWER_BYTES)
    letters = _letters(session, [row[0] for row in sizes])
    dead_page = core_rows.DeadPage(letters, chosen.count(session))
    if sizes and len(behind) > len(sizes):
        dead_page.next = (sizes[-1][1], sizes[-1][0])
    return dead_page


def _letters(session: Session, ids: list[int]) -> list[core_rows.DeadLetter]:
    """Letters by their numbers, newest first."""
    if not ids:
        return []
    rows = session.rows("dead_of_ids", {"ids": msgspec.json.encode(ids).decode()})
    return [letter_from(row) for row in rows]


@answers(q.CountDead)
def count_dead(snapshot: Snapshot, query: q.CountDead) -> int:
    return _Filter(snapshot.session, query).count(snapshot.session)


@answers(q.CountDeadByTime)
def count_dead_by_time(snapshot: Snapshot, query: q.CountDeadByTime) -> core_rows.TimeSeries:
    session = snapshot.session
    chosen = _Filter(session, query)
    step = -((query.after_at - query.before_at) // query.buckets)
    where = {**chosen.where, "first": query.after_at, "step": step, "before_at": query.before_at - 1}
    counts: dict[str, list[int]] = {}
    for bucket, reason, count in session.rows(f"dead_series{chosen.suffix}", where):
        counts.setdefault(reason, [0] * query.buckets)[int(bucket)] = int(count)
    return core_rows.TimeSeries(query.after_at, step, counts)


@answers(q.ListDeadKinds)
def list_dead_kinds(snapshot: Snapshot, query: q.ListDeadKinds) -> core_rows.Page[core_rows.DeadKind]:
    session = snapshot.session
    chosen = _Filter(session, query)
    count, queue, kind = query.after or (0, "", "")
    paged = {"paged": int(query.after is not None), "last_n": count, "last_queue": queue, "last_kind": kind}
    rows = session.rows(f"dead_kinds{chosen.suffix}", {**chosen.where, **paged, "limit": query.limit})
    return page(map(_kind_from, rows), query.limit, lambda row: (row.count, row.queue, row.kind))


def _kind_from(row: Row) -> core_rows.DeadKind:
    queue, kind, count, first_at, last_at, reasons, uuid, error, error_type = row
    counts = {name: int(n) for name, n in (pair.split(" ") for pair in reasons.split(","))}
    return core_rows.DeadKind(queue, kind, int(count), counts, first_at, last_at, uuid, error, error_type)


def _fitting(sizes: list[Row], room: int) -> list[Row]:
    """The leading rows (id, instant, bytes) that fit `room` bytes, at least one."""
    fitting = []
    for row in sizes:
        if room <= 0:
            break
        room -= row[2] + validation.ROW_BYTES
        fitting.append(row)
    return fitting


def _named_dead(session: Session, query: q.ListDead) -> core_rows.DeadPage:
    assert query.ids is not None
    where = {**_Filter(session, query).where, "part": query.partition}
    where.setdefault("queue", None)
    named = [session.row("dead_with", {**where, "uuid": uuid}) for uuid in set(query.ids)]
    matching = sorted((row for row in named if row), key=lambda row: (row[1], row[0]), reverse=True)
    sizes = _fitting(matching[query.offset : query.offset + query.limit], validation.ANSWER_BYTES)
    return core_rows.DeadPage(_letters(session, [size[0] for size in sizes]), len(matching))


def letter_from(row: Row) -> core_rows.DeadLetter:
    (
        uuid,
        queue,
        part,
        part_uuid,
        group,
        lane,
        seq,
        txid,
        reason,
        error,
        etype,
        fails,
        delivs,
        history,
        body,
        born,
        died,
        kind,
    ) = row
    message: Message = segment.snapshot(lane, seq, born, body)
    return core_rows.DeadLetter(
        id=uuid,
        queue=queue,
        partition=part,
        partition_id=part_uuid,
        group=group,
        seq=message.seq,
        message_id=message.id,
        transaction_id=txid,
        reason=reason,
        error=error,
        error_type=etype,
        failures=fails,
        deliveries=delivs,
        history=msgspec.json.decode(history) if history else [],
        payload=message.payload,
        headers=message.headers,
        content_type=message.content_type,
        created_at=message.created_at,
        dead_at=died,
        kind=kind,
    )
