"""Dead letters, as lists."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core import queries as q
from ackwise.core import rows as core_rows
from ackwise.core import validation
from ackwise.core.messages import Message
from ackwise.engine import catalog, segment
from ackwise.engine.ports import Row, Session
from ackwise.engine.reads.queues import ALWAYS
from ackwise.engine.reads.registry import Snapshot, answers


@answers(q.ListDead)
def list_dead(snapshot: Snapshot, query: q.ListDead) -> core_rows.DeadPage:
    session = snapshot.session
    queue = catalog.queue(session, query.queue).id if query.queue is not None else None
    before = ALWAYS[1] if query.before_at is None else query.before_at
    where = {
        "queue": queue,
        "grp": query.group,
        "part": query.partition,
        "reason": query.reason,
        "after_at": ALWAYS[0] if query.after_at is None else query.after_at,
        "before_at": before,
    }
    if query.ids is not None:
        return _named_dead(session, query, where)
    suffix = "_all" if queue is None else ""
    if queue is None:
        del where["queue"]
    total = session.row(f"dead_count{suffix}", where)
    last_at, last_id = query.after if query.after is not None else (ALWAYS[1], ALWAYS[1])
    where |= {"last_at": last_at, "last_id": last_id, "before_at": min(before, last_at)}
    limit = min(query.limit, validation.MOST_ROWS)
    where |= {"limit": limit + 1, "offset": query.offset}
    behind = session.rows(f"dead_sizes{suffix}", where)
    sizes = _fitting(behind[:limit], validation.ANSWER_BYTES)
    rows = session.rows(f"dead_list{suffix}", {**where, "limit": len(sizes)}) if sizes else []
    dead_page = core_rows.DeadPage([letter_from(row) for row in rows], total[0] if total else 0)
    if sizes and len(behind) > len(sizes):
        dead_page.next = (sizes[-1][1], sizes[-1][0])
    return dead_page


def _fitting(sizes: list[Row], room: int) -> list[Row]:
    """The leading rows (id, instant, bytes) that fit `room` bytes, at least one."""
    fitting = []
    for row in sizes:
        if room <= 0:
            break
        room -= row[2] + validation.ROW_BYTES
        fitting.append(row)
    return fitting


def _named_dead(session: Session, query: q.ListDead, where: dict[str, Any]) -> core_rows.DeadPage:
    assert query.ids is not None
    named = [session.row("dead_with", {**where, "uuid": uuid}) for uuid in set(query.ids)]
    matching = sorted((row for row in named if row), key=lambda row: (row[1], row[0]), reverse=True)
    sizes = _fitting(matching[query.offset : query.offset + query.limit], validation.ANSWER_BYTES)
    rows = [row for size in sizes if (row := session.row("dead_get", {"id": size[0]})) is not None]
    return core_rows.DeadPage([letter_from(row) for row in rows], len(matching))


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
    )
