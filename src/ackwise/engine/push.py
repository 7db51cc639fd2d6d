"""Drops duplicates and appends one segment per lane and turn."""

from __future__ import annotations

from typing import Any

from ackwise.core import validation
from ackwise.core.answers import Placed, PlacedRun, Receipts
from ackwise.core.command_checks import check_sizes
from ackwise.core.commands import Push
from ackwise.core.errors import RolledBack
from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.core.policy import QueuePolicy
from ackwise.engine import catalog, segment_reads
from ackwise.engine.catalog import LaneRef, QueueRow
from ackwise.engine.segment import (
    MAX_BYTES,
    MAX_MESSAGES,
    MessageColumns,
    Segment,
    largest,
    pack,
    pack_extras,
    place,
    place_lane,
    place_seq,
)
from ackwise.engine.turn import Turn


class Appender:
    """Collects the pushes of a turn, so that each lane gets one segment for all callers."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._queues: dict[str, QueueRow] = {}
        self._lanes: dict[tuple[int, str, int], tuple[LaneRef, QueueRow]] = {}
        self._waiting: dict[int, MessageColumns] = {}

    def expect(self, pushes: list[Push]) -> None:
        """Look up the transaction ids of many pushes together, if a lookup costs a round trip."""
        if not self._turn.dedupe.asks:
            return
        batches: list[tuple[int, list[str]]] = []
        for command in pushes:
            batch = command.messages
            if not isinstance(batch, PlainBatch) or not batch.transaction_ids:
                continue
            owner = catalog.find_queue(self._turn.session, command.queue)
            part = catalog.find_part(self._turn.session, owner, batch.partition) if owner is not None else None
            if part is not None and all(batch.transaction_ids):
                batches.append((part, batch.transaction_ids))
        # The answer stays true only for locked partitions.
        self._turn.session.lock_parts(sorted({part for part, _ in batches}))
        self._turn.dedupe.expect([h for part, names in batches for h in self._turn.hashes(part, 0, names)])

    def push(self, command: Push, *, on_duplicate: str = "ok") -> Receipts:
        """Append the messages of a push. With `on_duplicate="fail"` a duplicate refuses the whole call."""
        owner, longest = self._queue(command)
        messages = command.messages
        if isinstance(messages, PlainBatch):
            size = len(messages.payloads)
            if size and (run := self._place_run(owner, messages, size, longest)) is not None:
                self._turn.count(owner.name, "", "pushed", size)
                return Receipts(run)
            messages = messages.messages()
        placed = self._place_each(owner, messages)
        duplicates = [p for p in placed if p.status == "duplicate"]
        if duplicates and on_duplicate == "fail":
            raise RolledBack(f"rolled back: duplicate transaction id {duplicates[0].txid!r}", reason="duplicate")
        self._turn.count(owner.name, "", "pushed", len(placed) - len(duplicates))
        self._turn.count(owner.name, "", "duplicate", len(duplicates))
        return Receipts(placed)

    def promote(self, owner: QueueRow, partition: str, prio: int, columns: MessageColumns) -> None:
        """Append a scheduled message that is due. It keeps its ids."""
        lane = self._lane(owner, partition, prio)
        hashed = self._turn.hashes(lane.part, columns.runs[0][0], columns.txids)
        self._turn.dedupe.find(hashed)
        self._append(lane, columns, hashed)

    def _queue(self, command: Push) -> tuple[QueueRow, int]:
        """The queue of a push and the bytes of its largest payload. A push that is too large creates no queue."""
        known = self._queues.get(command.queue) or catalog.find_queue(self._turn.session, command.queue)
        longest = check_sizes(command.messages, known.policy if known else command.create or QueuePolicy())
        if known is None:
            known = catalog.ensure_queue(self._turn, command.queue, command.create)
        self._queues[command.queue] = known
        return known, longest

    def _lane(self, owner: QueueRow, partition: str, prio: int) -> LaneRef:
        key = (owner.id, partition, prio)
        if key not in self._lanes:
            self._lanes[key] = (catalog.ensure_lane(self._turn, owner, partition, prio), owner)
        return self._lanes[key][0]

    def _place_run(self, owner: QueueRow, batch: PlainBatch, size: int, longest: int) -> PlacedRun | None:
        """Append plain messages for one lane as one run. None if one of them may be a duplicate."""
        lane = self._lane(owner, batch.partition, batch.priority)
        first = self._turn.new_ids(size)
        txids = batch.transaction_ids or [""] * size
        hashed = self._turn.hashes(lane.part, first, batch.transaction_ids or size)
        if len(set(hashed)) != size or self._turn.dedupe.find(hashed):
            return None
        extras = pack_extras(None, batch.content_type)
        columns = MessageColumns(first, list(txids), list(batch.payloads), [extras] * size if extras else None)
        columns.longest = longest
        seq = self._append(lane, columns, hashed)
        return PlacedRun(first, txids, size, lane.part_name, lane.part_uuid, seq)

    def _place_each(self, owner: QueueRow, messages: list[NewMessage]) -> list[Placed]:
        """Append messages with options or possible duplicates, after one lookup for all of them."""
        first = self._turn.new_ids(len(messages))
        lanes = [self._lane(owner, m.partition, m.priority) for m in messages]
        hashed = [
            self._turn.hashes(lane.part, number, [m.transaction_id or ""])
            for number, (lane, m) in enumerate(zip(lanes, messages, strict=True), first)
        ]
        maybe = set(self._turn.dedupe.find([h for (h,) in hashed]))
        placed = []
        for number, (message, lane, keys) in enumerate(zip(messages, lanes, hashed, strict=True), first):
            placed.append(self._place(owner, message, lane, number, keys, seen=keys[0] in maybe))
            maybe.add(keys[0])
        return placed

    def _place(
        self, owner: QueueRow, message: NewMessage, lane: LaneRef, number: int, hashed: list[int], *, seen: bool
    ) -> Placed:
        txid = message.transaction_id or ""
        before = self._find_duplicate(owner, hashed[0], txid) if seen else None
        if before is not None:
            return Placed("duplicate", before[0], txid, lane.part_name, lane.part_uuid, before[1])
        extras = pack_extras(message.headers, message.content_type)
        columns = MessageColumns(number, [txid], [message.payload], [extras] if extras else None)
        if message.delay:
            self._schedule(owner, lane, message, columns, hashed)
            return Placed("scheduled", number, txid, lane.part_name, lane.part_uuid, None)
        seq = self._append(lane, columns, hashed)
        return Placed("queued", number, txid, lane.part_name, lane.part_uuid, seq)

    def _schedule(
        self, owner: QueueRow, lane: LaneRef, message: NewMessage, columns: MessageColumns, hashed: list[int]
    ) -> None:
        row = self._turn.session.row(
            "scheduled_insert",
            {
                "queue": owner.id,
                "part": lane.part,
                "prio": message.priority,
                "due_at": self._turn.now + message.delay,
                "created_at": self._turn.wall,
                "body": pack(columns),
            },
        )
        assert row is not None
        self._turn.memory.note_scheduled(self._turn.now + message.delay)
        self._turn.dedupe.add(hashed, -row[0])

    def _append(self, lane: LaneRef, columns: MessageColumns, hashed: list[int]) -> int:
        seq = lane.head
        lane.head += len(hashed)
        self._turn.dedupe.add(hashed, place(lane.lane, seq))
        if lane.lane in self._waiting:
            self._waiting[lane.lane].extend(columns)
        else:
            self._waiting[lane.lane] = columns
        return seq

    def _find_duplicate(self, owner: QueueRow, hashed: int, txid: str) -> tuple[int, int | None] | None:
        """(id, seq) of the first message with this transaction id inside the queue's dedupe window."""
        window = round(owner.policy.dedupe_seconds * validation.MICROS)
        for pos in self._turn.dedupe.find([hashed]).get(hashed, []):
            candidate = self._candidate(pos)
            if candidate is None:
                continue
            segment, seq = candidate
            if segment.matches(seq, txid) and (
                window == 0 or segment.message(seq).created_at + window > self._turn.wall
            ):
                return segment.id_int(seq), None if pos < 0 else seq
        return None

    def _candidate(self, pos: int) -> tuple[Segment, int] | None:
        """The message at a place: scheduled, appended in this turn, or stored."""
        if pos < 0:
            row = self._turn.session.row("scheduled_by_no", {"no": -pos})
            return (Segment(0, 0, row[5], row[6]), 0) if row else None
        lane, seq = place_lane(pos), place_seq(pos)
        waiting = self._waiting.get(lane)
        if waiting is not None:
            head = next(ref.head for ref, _ in self._lanes.values() if ref.lane == lane)
            at = seq - (head - len(waiting))
            if at >= 0:
                return Segment(pos, seq, self._turn.wall, pack(waiting.part(at, at + 1))), seq
        segment = segment_reads.segment_with(self._turn.session, lane, seq)
        return (segment, seq) if segment is not None else None

    def flush(self) -> None:
        """Write the segments, move the heads and make the lanes claimable."""
        turn = self._turn
        segments: list[dict[str, Any]] = []
        heads: list[dict[str, int]] = []
        wakes: list[dict[str, int]] = []
        queues: set[str] = set()
        for ref, owner in self._lanes.values():
            waiting = self._waiting.pop(ref.lane, None)
            if waiting is None:
                continue
            size = len(waiting)
            first = ref.head - size
            for chunk, last in _chunks(waiting, size, first):
                row = {"pos": place(ref.lane, last), "first": first, "created_at": turn.wall, "body": pack(chunk)}
                segments.append(row)
                first = last + 1
            heads.append({"id": ref.lane, "head": ref.head, "now": turn.wall, "largest": largest(waiting)})
            ready = turn.now + round(max(owner.policy.delay_seconds, owner.policy.window_seconds) * validation.MICROS)
            wakes.append({"lane": ref.lane, "at": ready, "relaxed": int(owner.order == "relaxed")})
            turn.wake(owner.name, size)
            queues.add(owner.name)
        turn.session.many("segment_insert", segments)
        turn.written += segments
        turn.session.many("lane_advance", heads)
        if turn.session.many("cursor_wake", wakes):
            for queue in queues:
                turn.announce(queue)


def _chunks(waiting: MessageColumns, count: int, first: int) -> list[tuple[MessageColumns, int]]:
    """Cut columns into segments of bounded length and size, with the seq of the last message of each.

    A large payload gets its own segment. `first` is the seq of the first message.
    """
    whole = [(waiting, first + count - 1)]
    if count <= MAX_MESSAGES and count * waiting.longest <= MAX_BYTES:
        return whole
    sizes = list(map(len, waiting.payloads))
    if count <= MAX_MESSAGES and sum(sizes) <= MAX_BYTES:
        return whole
    chunks: list[tuple[MessageColumns, int]] = []
    lo = size = 0
    for at, payload_size in enumerate(sizes):
        if at > lo and (at - lo >= MAX_MESSAGES or size + payload_size > MAX_BYTES):
            chunks.append((waiting.part(lo, at), first + at - 1))
            lo, size = at, 0
        size += payload_size
    chunks.append((waiting.part(lo, count), first + count - 1))
    return chunks


def push_now(turn: Turn, pushes: list[Push], on_duplicate: str) -> list[Receipts]:
    """Append and write the pushes of a transaction inside its savepoint."""
    appender = Appender(turn)
    if len(pushes) > 1:
        appender.expect(pushes)
    receipts = [appender.push(command, on_duplicate=on_duplicate) for command in pushes]
    appender.flush()
    return receipts
