"""Dead letters: buried with their story, put back, copied, forgotten."""

from __future__ import annotations

import msgspec

from ackwise.core import limits
from ackwise.core.answers import Redriven
from ackwise.core.commands import PurgeDead, Push, Redrive, Replay
from ackwise.core.errors import AckwiseError, RedriveRefused
from ackwise.core.ids import uuid_int, uuid_text
from ackwise.core.lifecycle import Event, State, target
from ackwise.core.messages import NewMessage, Receipt
from ackwise.core.policy import QueuePolicy
from ackwise.core.settlement import Fate
from ackwise.core.spans import Cursor, Span
from ackwise.store import segment
from ackwise.store.session import Row
from ackwise.store.turn import catalog, places, push, reading
from ackwise.store.turn.catalog import GroupRow, QueueRow
from ackwise.store.turn.checks import check_push
from ackwise.store.turn.context import Turn

MOST_HISTORY = 20
LONGEST_NOTE = 500
MOST_NAMED = 100
"""Dead letters that a settlement names in its answer."""


def add_history(
    history: str, at: int, event: str, owner: str | None, error: str | None, trace: str | None = None
) -> str:
    """One more line of a delivery's story; only the newest are kept, and of the newest trace alone."""
    lines = msgspec.json.decode(history) if history else []
    line = {"at": at, "event": event, "owner": owner, "error": limits.text(error or "", "error", LONGEST_NOTE)}
    if trace:
        for earlier in lines:
            earlier.pop("trace", None)
        line["trace"] = limits.text(trace[-limits.LONGEST_TRACE :], "trace", limits.LONGEST_TRACE)
    return msgspec.json.encode([*lines, line][-MOST_HISTORY:]).decode()


def last_error(history: str) -> str | None:
    """The text of the newest failure in a delivery's history."""
    lines = msgspec.json.decode(history) if history else []
    return next((line["error"] for line in reversed(lines) if line.get("error")), None)


class Burial(msgspec.Struct, frozen=True):
    """Messages that die together, and of what."""

    span: Span
    fate: Fate
    error: str
    error_type: str = ""
    letters: list[str] = []
    """The first dead letters that become of them."""


def bury(turn: Turn, queue: QueueRow, group: GroupRow, cursor: Cursor, burials: list[Burial]) -> None:
    """Write a dead letter for every message of spans of one lane. The caller takes the spans themselves away."""
    ranges = [(one.span.lo, one.span.hi) for one in burials]
    messages = {message.seq: message for message in reading.messages(turn.session, cursor.lane, ranges)}
    rows = []
    for one in burials:
        error = limits.text(one.error, "error", limits.LONGEST_ERROR)
        etype = limits.text(one.error_type, "error_type", LONGEST_NOTE)
        for message in (messages[seq] for seq in range(one.span.lo, one.span.hi) if seq in messages):
            uuid = uuid_text(turn.new_uuid())
            if len(one.letters) < MOST_NAMED:
                one.letters.append(uuid)
            rows.append(
                {
                    "uuid": uuid,
                    "queue": queue.id,
                    "part": cursor.part,
                    "lane": cursor.lane,
                    "seq": message.seq,
                    "epoch": cursor.epoch,
                    "grp": group.id,
                    "grp_name": group.name,
                    "txid": message.transaction_id,
                    "reason": one.fate.reason.value if one.fate.reason else "",
                    "error": error,
                    "etype": etype,
                    "fails": one.fate.failures,
                    "delivs": one.span.delivs,
                    "history": one.span.history,
                    "snapshot": segment.one(message),
                    "born_at": message.created_at,
                    "dead_at": turn.now,
                }
            )
    turn.session.many("dead_insert", rows)


def note_dropped(turn: Turn, grp: int, ranges: list[tuple[int, int, int]]) -> None:
    """Record (lane, lo, hi) ranges that died in a queue without dead letters, so that reads show them as dropped."""
    if ranges:
        turn.session.many("dropped_insert", [{"lane": lane, "grp": grp, "lo": lo, "hi": hi} for lane, lo, hi in ranges])


def redrive(turn: Turn, command: Redrive) -> Redriven:
    results = dict.fromkeys(command.ids, "not_found")
    turn.session.lock_parts(sorted({row[3] for row in _letters(turn, command.ids)}))
    for row in _letters(turn, command.ids):
        try:
            _put_back(turn, row)
            results[row[1]] = "redriven"
        except RedriveRefused as refusal:
            results[row[1]] = refusal.code
    return Redriven(results)


def _letters(turn: Turn, uuids: list[str]) -> list[Row]:
    """The dead letters of these ids that exist."""
    wanted = [uuid for uuid in dict.fromkeys(uuids) if uuid_int(uuid) is not None]
    return [row for uuid in wanted if (row := turn.session.row("dead_by_uuid", {"uuid": uuid})) is not None]


def _put_back(turn: Turn, row: Row) -> None:
    """The same group gets it again at its old place, with a clean count and its history."""
    number, _, _, _, lane, seq, epoch, grp, name, body, history, born_at = row[:12]
    group_row = turn.session.row("group_by_id", {"id": grp})
    cursor = turn.cursor(lane, grp) if group_row else None
    if group_row is None or cursor is None:
        raise RedriveRefused(f"group {name!r} is gone; replay the dead letter as a new message instead")
    group = catalog.group_from(group_row)
    queue = catalog.queue_of_id(turn.session, group.queue)
    assert queue is not None
    target(State.DEAD, Event.REDRIVE)
    if epoch == cursor.epoch:
        cursor.dead -= 1
        cursor.held += 1
    elif seq < cursor.floor:
        # Below where a seek put the group everything was skipped; this one message is taken up again.
        if seq < cursor.first:
            cursor.skipped += cursor.first - seq
            cursor.first = seq
        cursor.skipped -= 1
        cursor.held += 1
    else:
        raise RedriveRefused(
            "the group was moved by a seek and has this message before it; replay it as a new message instead"
        )
    if reading.segments(turn.session, lane, seq, seq + 1) == []:
        turn.session.run(
            "segment_restore", {"pos": segment.place(lane, seq), "first": seq, "created_at": born_at, "body": body}
        )
        turn.session.run("lane_restored", {"id": lane, "born_at": born_at, "largest": len(body)})
    story = add_history(history, turn.now, "redrive", None, None)
    turn.add_span(Span(lane, grp, seq, seq + 1, due_at=turn.now, history=story))
    turn.session.run("dead_delete", {"id": number})
    places.refresh(turn, cursor, group.policy.over(queue.policy), queue.name)
    turn.count(queue.name, group.name, "redriven", 1)


def replay(turn: Turn, command: Replay) -> Redriven:
    """A copy at the tail, with a transaction id made from the dead letter's, so that a repeat is a duplicate."""
    for what, text in (("queue", command.queue), ("partition", command.partition)):
        if text is not None:
            limits.name(text, what)
    results = dict.fromkeys(command.ids, "not_found")
    copies = {}
    turn.savepoint()
    try:
        for row in _letters(turn, command.ids):
            copies[row[1]] = copy = _copy(turn, command, row)
            results[row[1]] = "duplicate" if copy.status == "duplicate" else "replayed"
    except AckwiseError:
        turn.undo()
        raise
    turn.keep()
    return Redriven(results, copies)


def _copy(turn: Turn, command: Replay, row: Row) -> Receipt:
    number, uuid, lane, seq, body, born_at = row[0], row[1], row[4], row[5], row[9], row[11]
    message = segment.snapshot(lane, seq, born_at, body)
    copy = NewMessage(
        message.payload,
        partition=command.partition or row[13],
        priority=row[14],
        transaction_id=f"dlq:{uuid}",
        headers=message.headers or None,
        content_type=message.content_type,
    )
    place = Push(queue=command.queue or row[12], messages=[copy], create=QueuePolicy() if command.queue else None)
    (receipts,) = push.push_now(turn, [check_push(place)], "ok")
    if receipts[0].status != "duplicate":
        # A duplicate pushed nothing: the record is the only certain copy of this message.
        turn.session.run("dead_delete", {"id": number})
    return receipts[0]


def purge(turn: Turn, command: PurgeDead) -> int:
    if command.ids is not None:
        return sum(turn.session.run("dead_delete", {"id": row[0]}) for row in _letters(turn, command.ids))
    if command.group is not None:
        limits.name(command.group, "group")
    number = catalog.queue(turn.session, command.queue).id if command.queue is not None else None
    return turn.session.run("dead_purge", {"queue": number, "grp": command.group})
