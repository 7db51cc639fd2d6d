"""Buries, redrives, replays and purges dead letters."""

from __future__ import annotations

import msgspec

from ackwise.core import validation
from ackwise.core.answers import Counted, PurgePlace, Redriven
from ackwise.core.commands import PurgeDead, Push, Redrive, Replay
from ackwise.core.error_kinds import error_kind
from ackwise.core.errors import AckwiseError, RedriveRefused
from ackwise.core.ids import GroupId, uuid_int, uuid_text
from ackwise.core.lane_range import LaneRange
from ackwise.core.lifecycle import LifecycleEvent, State, allows
from ackwise.core.messages import NewMessage, Receipt
from ackwise.core.policy import NEW_QUEUE_POLICY
from ackwise.core.settlement import Fate
from ackwise.core.spans import Cursor, Span
from ackwise.engine import catalog, cursors, push, segment, segment_reads
from ackwise.engine.catalog import GroupRow, QueueRow
from ackwise.engine.ports import Row
from ackwise.engine.turn import Turn

MOST_HISTORY = 20
LONGEST_NOTE = 500
MOST_NAMED = 100
"""Dead letters that a settlement names in its answer."""
MOST_PURGED = 1000
"""Dead letters that one turn of a purge reads."""


def add_history(
    history: str,
    at: int,
    event: str,
    *,
    owner: str | None = None,
    error: str | None = None,
    error_type: str | None = None,
    trace: str | None = None,
) -> str:
    """Add a line to a delivery's history. Keeps the newest lines, and only the newest trace."""
    lines = msgspec.json.decode(history) if history else []
    line: dict[str, object] = {
        "at": at,
        "event": event,
        "owner": owner,
        "error": validation.text(error or "", "error", LONGEST_NOTE),
    }
    if error_type:
        line["error_type"] = validation.text(error_type, "error_type", LONGEST_NOTE)
    if trace:
        for earlier in lines:
            earlier.pop("trace", None)
        line["trace"] = validation.text(trace[-validation.LONGEST_TRACE :], "trace", validation.LONGEST_TRACE)
    return msgspec.json.encode([*lines, line][-MOST_HISTORY:]).decode()


def last_error(history: str) -> str | None:
    """The text of the newest failure in a delivery's history."""
    lines = msgspec.json.decode(history) if history else []
    return next((line["error"] for line in reversed(lines) if line.get("error")), None)


class Burial(msgspec.Struct, frozen=True):
    """A span of messages that die, with the reason and the error."""

    span: Span
    fate: Fate
    error: str
    error_type: str = ""
    letters: list[str] = []
    """Collects the ids of the first dead letters."""


def bury(turn: Turn, queue: QueueRow, group: GroupRow, cursor: Cursor, burials: list[Burial]) -> None:
    """Write a dead letter for every message of spans of one lane. The caller removes the spans."""
    ranges = [(burial.span.lo, burial.span.hi) for burial in burials]
    messages = {message.seq: message for message in segment_reads.messages(turn.session, cursor.lane, ranges)}
    rows = []
    for burial in burials:
        error = validation.text(burial.error, "error", validation.LONGEST_ERROR)
        kind = error_kind(error)
        etype = validation.text(burial.error_type, "error_type", LONGEST_NOTE)
        for message in (messages[seq] for seq in range(burial.span.lo, burial.span.hi) if seq in messages):
            uuid = uuid_text(turn.new_uuid())
            if len(burial.letters) < MOST_NAMED:
                burial.letters.append(uuid)
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
                    "reason": burial.fate.reason.value if burial.fate.reason else "",
                    "error": error,
                    "kind": kind,
                    "etype": etype,
                    "fails": burial.fate.failures,
                    "delivs": burial.span.delivs,
                    "history": burial.span.history,
                    "snapshot": segment.pack_message(message),
                    "born_at": message.created_at,
                    "dead_at": turn.wall,
                    "mark": turn.now,
                }
            )
    turn.session.many("dead_insert", rows)
    turn.buried.append((queue.name, rows))


def note_dropped(turn: Turn, grp: GroupId, ranges: list[LaneRange]) -> None:
    """Record ranges that died in a queue without dead letters, so that reads show them as dropped."""
    if ranges:
        turn.session.many("dropped_insert", [{"lane": lane, "grp": grp, "lo": lo, "hi": hi} for lane, lo, hi in ranges])


def redrive(turn: Turn, command: Redrive) -> Redriven:
    results = dict.fromkeys(command.ids, "not_found")
    turn.session.lock_parts(sorted({row[3] for row in _letters(turn, command.ids)}))
    letters = _letters(turn, command.ids)
    for row in letters:
        try:
            _put_back(turn, row)
            results[row[1]] = "redriven"
        except RedriveRefused as refusal:
            results[row[1]] = refusal.code
    return Redriven(results, queue=_queue_of(letters))


def _letters(turn: Turn, uuids: list[str]) -> list[Row]:
    """Rows of the existing dead letters among these ids."""
    wanted = [uuid for uuid in dict.fromkeys(uuids) if uuid_int(uuid) is not None]
    return [row for uuid in wanted if (row := turn.session.row("dead_by_uuid", {"uuid": uuid})) is not None]


def _queue_of(letters: list[Row]) -> str:
    """The queue of the first letter, for logs."""
    return str(letters[0][12]) if letters else ""


def _put_back(turn: Turn, row: Row) -> None:
    """Return a message to its group at its old position, with no failures and its history."""
    number, _, _, _, lane, seq, epoch, grp, name, body, history, born_at = row[:12]
    group_row = turn.session.row("group_by_id", {"id": grp})
    cursor = turn.cursor(lane, grp) if group_row else None
    if group_row is None or cursor is None:
        raise RedriveRefused(f"group {name!r} was deleted; replay the dead letter as a new message instead")
    group = catalog.group_from(group_row)
    queue = catalog.queue_of_id(turn.session, group.queue)
    assert queue is not None
    state = _state_of(cursor, seq, epoch)
    if not allows(state, LifecycleEvent.REDRIVE):
        raise RedriveRefused("a seek moved the group to before this message; replay it as a new message instead")
    if state is State.DEAD:
        cursor.dead -= 1
    else:
        # A seek skipped everything below the floor. This one message is held again.
        if seq < cursor.first:
            cursor.skipped += cursor.first - seq
            cursor.first = seq
        cursor.skipped -= 1
    cursor.held += 1
    if segment_reads.segments(turn.session, lane, seq, seq + 1) == []:
        turn.session.run(
            "segment_restore", {"pos": segment.place(lane, seq), "first": seq, "created_at": born_at, "body": body}
        )
        turn.session.run("lane_restored", {"id": lane, "born_at": born_at, "largest": len(body)})
    history = add_history(history, turn.wall, "redrive")
    turn.add_span(Span(lane, grp, seq, seq + 1, due_at=turn.now, history=history))
    turn.session.run("dead_delete", {"id": number})
    cursors.refresh(turn, cursor, catalog.policy_in_force(queue, group), queue.name)
    turn.count(queue.name, group.name, "redriven", 1)


def _state_of(cursor: Cursor, seq: int, epoch: int) -> State:
    """State of a dead letter's message for its group. A seek after its death made the message skipped or ready."""
    if epoch == cursor.epoch:
        return State.DEAD
    return State.SKIPPED if seq < cursor.floor else State.READY


def replay(turn: Turn, command: Replay) -> Redriven:
    """Push a copy of each dead letter. Its transaction id comes from the dead letter, so a repeat is a duplicate."""
    results = dict.fromkeys(command.ids, "not_found")
    copies = {}
    letters = _letters(turn, command.ids)
    turn.savepoint()
    try:
        for row in letters:
            copies[row[1]] = copy = _copy(turn, command, row)
            results[row[1]] = "duplicate" if copy.status == "duplicate" else "replayed"
    except AckwiseError:
        turn.undo()
        raise
    turn.keep()
    return Redriven(results, copies, _queue_of(letters))


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
    create = NEW_QUEUE_POLICY if command.queue else None
    place = Push(queue=command.queue or row[12], messages=[copy], create=create)
    (receipts,) = push.push_now(turn, [place], "ok")
    if receipts[0].status != "duplicate":
        # After a duplicate the dead letter may be the only copy of the message.
        turn.session.run("dead_delete", {"id": number})
    return receipts[0]


def purge(turn: Turn, command: PurgeDead) -> Counted:
    """Remove the named dead letters, or the next matching ones, oldest first.

    A turn reads at most `MOST_PURGED` letters. If letters are left, the answer has the place to continue.
    """
    if command.ids is not None:
        named = _letters(turn, command.ids)
        count = sum(turn.session.run("dead_delete", {"id": row[0]}) for row in named)
        return Counted(count, queue=_queue_of(named))
    behind = command.behind or PurgePlace(turn.wall)
    where = {"until": behind.until, "dead_at": behind.dead_at, "id": behind.id, "limit": MOST_PURGED}
    if command.queue is None:
        rows = turn.session.rows("dead_oldest_all", where)
    else:
        queue = catalog.queue(turn.session, command.queue)
        rows = turn.session.rows("dead_oldest", {**where, "queue": queue.id})
    letters = [{"id": number} for number, _, group in rows if command.group in (None, group)]
    count = behind.count + turn.session.many("dead_delete", letters)
    if len(rows) < MOST_PURGED:
        return Counted(count)
    return Counted(count, PurgePlace(behind.until, dead_at=rows[-1][1], id=rows[-1][0], count=count))
