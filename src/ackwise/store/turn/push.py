"""Push: check everything, drop duplicates, append one segment per lane and turn."""

from __future__ import annotations


from ackwise.core import limits
from ackwise.core.answers import Placed, Receipts
from ackwise.core.commands import Push
from ackwise.core.errors import BadInput, PayloadTooLarge, RolledBack
from ackwise.core.messages import JSON, NewMessage
from ackwise.core.policy import QueuePolicy
from ackwise.store.segment import (
    MAX_BYTES,
    MAX_MESSAGES,
    Packed,
    Segment,
    pack,
    pack_extras,
    place,
    place_lane,
    place_seq,
)
from ackwise.store.turn import catalog, reading
from ackwise.store.turn.catalog import LaneRef, QueueRow
from ackwise.store.turn.context import Turn


def check(command: Push) -> None:
    """Refuse what is wrong before anything is made."""
    limits.name(command.queue, "queue")
    if not isinstance(command.messages, list) or len(command.messages) > limits.MAX_PUSH_ITEMS:
        raise BadInput(f"messages must be a list of at most {limits.MAX_PUSH_ITEMS}")
    partitions = set()
    for message in command.messages:
        if type(message.payload) is not bytes:
            raise BadInput(f"payload must be bytes, not {type(message.payload).__name__}")
        partitions.add(message.partition)
        if message.priority:
            limits.count(message.priority, "priority", least=0, most=limits.MAX_PRIORITY)
        if message.transaction_id is not None:
            limits.transaction_id(message.transaction_id)
        if message.headers:
            _check_headers(message.headers)
        if message.delay:
            limits.count(message.delay, "delay", least=0, most=round(limits.MAX_DELAY_SECONDS * limits.MICROS))
        if message.content_type is not JSON:
            limits.name(message.content_type, "content_type")
    for partition in partitions:
        limits.name(partition, "partition")
    if command.create is not None:
        command.create.check()


def _check_headers(headers: dict[str, str]) -> None:
    size = 0
    for key, value in headers.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise BadInput("headers must map strings to strings")
        size += len(limits.text(key, "header", limits.MAX_HEADERS_BYTES)) + len(
            limits.text(value, "header", limits.MAX_HEADERS_BYTES)
        )
        if "\0" in key or "\0" in value:
            raise BadInput("headers must not contain NUL")
    if size > limits.MAX_HEADERS_BYTES:
        raise BadInput(f"headers are larger than {limits.MAX_HEADERS_BYTES} bytes")


def _check_sizes(messages: list[NewMessage], policy: QueuePolicy) -> None:
    largest = max((len(m.payload) for m in messages), default=0)
    if largest > policy.max_payload_bytes:
        raise PayloadTooLarge(f"a payload of {largest} bytes is over the queue's limit of {policy.max_payload_bytes}")


class Appender:
    """Collects what a turn pushes, so that each lane gets one row however many callers pushed to it."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._lanes: dict[tuple[int, str, int], tuple[LaneRef, QueueRow]] = {}
        self._waiting: dict[int, list[Packed]] = {}

    def push(self, command: Push, *, on_duplicate: str = "ok") -> Receipts:
        """Place every message; with `on_duplicate="fail"` a duplicate refuses the whole call."""
        check(command)
        known = catalog.find_queue(self._turn.session, command.queue)
        _check_sizes(command.messages, known.policy if known else command.create or QueuePolicy())
        owner = known or catalog.ensure_queue(self._turn, command.queue, command.create)
        groups: dict[tuple[str, int], list[int]] = {}
        for index, message in enumerate(command.messages):
            groups.setdefault((message.partition, message.priority), []).append(index)
        placed: list[Placed | None] = [None] * len(command.messages)
        for (partition, prio), indexes in groups.items():
            lane = self._lane(owner, partition, prio)
            batch = [command.messages[i] for i in indexes]
            for index, result in zip(indexes, self._place(owner, lane, prio, batch), strict=True):
                placed[index] = result
        done = [p for p in placed if p is not None]
        duplicates = sum(1 for p in done if p.status == "duplicate")
        if duplicates and on_duplicate == "fail":
            first = next(p for p in done if p.status == "duplicate")
            raise RolledBack(f"rolled back: duplicate transaction id {first.txid!r}", reason="duplicate")
        self._turn.count(owner.name, "", "pushed", len(done) - duplicates)
        self._turn.count(owner.name, "", "duplicate", duplicates)
        return Receipts(done)

    def promote(self, owner: QueueRow, partition: str, prio: int, packed: Packed) -> None:
        """A scheduled message is due: it gets its seq now and keeps its ids."""
        lane = self._lane(owner, partition, prio)
        key = reading.key_bytes(packed[1]) if packed[1] else packed[0].to_bytes(16, "big")
        (hashed,) = reading.hashes(self._turn.hasher(lane.part), [key])
        self._append(lane, [packed], [hashed])

    def _lane(self, owner: QueueRow, partition: str, prio: int) -> LaneRef:
        key = (owner.id, partition, prio)
        if key not in self._lanes:
            self._lanes[key] = (catalog.ensure_lane(self._turn, owner, partition, prio), owner)
        return self._lanes[key][0]

    def _place(self, owner: QueueRow, lane: LaneRef, prio: int, batch: list[NewMessage]) -> list[Placed]:
        first = self._turn.new_ids(len(batch))
        txids = [m.transaction_id or "" for m in batch]
        keys = [
            reading.key_bytes(txid) if txid else number.to_bytes(16, "big") for number, txid in enumerate(txids, first)
        ]
        hashed = reading.hashes(self._turn.hasher(lane.part), keys)
        delayed = any(m.delay for m in batch)
        if not delayed and len(set(hashed)) == len(hashed) and not (found := self._turn.dedupe.find(hashed)):
            packed = [
                (number, txid, m.payload, pack_extras(m.headers, m.content_type))
                for number, (txid, m) in enumerate(zip(txids, batch, strict=True), first)
            ]
            seq = self._append(lane, packed, hashed)
            uuid, name = lane.part_uuid, lane.part_name
            return [Placed("queued", p[0], p[1], name, uuid, at) for at, p in enumerate(packed, seq)]
        return [
            self._place_one(owner, lane, prio, message, number, one)
            for number, (message, one) in enumerate(zip(batch, hashed, strict=True), first)
        ]

    def _place_one(
        self, owner: QueueRow, lane: LaneRef, prio: int, message: NewMessage, number: int, hashed: int
    ) -> Placed:
        txid = message.transaction_id or ""
        before = self._find_duplicate(owner, hashed, txid, number)
        if before is not None:
            return Placed("duplicate", before[0], txid, lane.part_name, lane.part_uuid, before[1])
        packed = (number, txid, message.payload, pack_extras(message.headers, message.content_type))
        if message.delay:
            self._schedule(owner, lane, prio, packed, hashed, self._turn.now + message.delay)
            return Placed("scheduled", number, txid, lane.part_name, lane.part_uuid, None)
        seq = self._append(lane, [packed], [hashed])
        return Placed("queued", number, txid, lane.part_name, lane.part_uuid, seq)

    def _schedule(self, owner: QueueRow, lane: LaneRef, prio: int, packed: Packed, hashed: int, due_at: int) -> None:
        row = self._turn.session.row(
            "scheduled_insert",
            {
                "queue": owner.id,
                "part": lane.part,
                "prio": prio,
                "due_at": due_at,
                "created_at": self._turn.now,
                "body": pack([packed]),
            },
        )
        assert row is not None
        self._turn.dedupe.add([(hashed, -row[0])])

    def _append(self, lane: LaneRef, packed: list[Packed], hashed: list[int]) -> int:
        seq = lane.head
        lane.head += len(packed)
        self._waiting.setdefault(lane.lane, []).extend(packed)
        pos = place(lane.lane, seq)
        self._turn.dedupe.add(list(zip(hashed, range(pos, pos + len(packed)), strict=True)))
        return seq

    def _find_duplicate(self, owner: QueueRow, hashed: int, txid: str, number: int) -> tuple[int, int | None] | None:
        """(id, seq) of the message that used this transaction id first, inside the queue's dedupe window."""
        for pos in self._turn.dedupe.find([hashed]).get(hashed, []):
            found = self._candidate(pos)
            if found is None:
                continue
            segment, seq = found
            window = round(owner.policy.dedupe_seconds * limits.MICROS)
            if segment.matches(seq, txid) and (window == 0 or segment.created_at + window > self._turn.now):
                return segment.id_int(seq), None if pos < 0 else seq
        return None

    def _candidate(self, pos: int) -> tuple[Segment, int] | None:
        if pos < 0:
            row = self._turn.session.row("scheduled_by_no", {"no": -pos})
            return (Segment(0, 0, row[5], row[6]), 0) if row else None
        lane, seq = place_lane(pos), place_seq(pos)
        for ref, _ in self._lanes.values():
            waiting = self._waiting.get(lane)
            if ref.lane == lane and waiting and seq >= ref.head - len(waiting):
                packed = waiting[seq - (ref.head - len(waiting))]
                return Segment(pos, seq, self._turn.now, pack([packed])), seq
        segment = reading.segment_with(self._turn.session, lane, seq)
        return (segment, seq) if segment is not None else None

    def flush(self) -> None:
        """Write the segments, move the heads and make the lanes claimable."""
        turn = self._turn
        for ref, owner in self._lanes.values():
            waiting = self._waiting.pop(ref.lane, None)
            if not waiting:
                continue
            first = ref.head - len(waiting)
            for chunk in _chunks(waiting):
                last = first + len(chunk) - 1
                row = {"pos": place(ref.lane, last), "first": first, "created_at": turn.now, "body": pack(chunk)}
                turn.session.run("segment_insert", row)
                turn.written.append(row)
                first = last + 1
            turn.session.run("lane_advance", {"id": ref.lane, "head": ref.head, "now": turn.now})
            ready = turn.now + round(owner.policy.delay_seconds * limits.MICROS)
            relaxed = int(owner.policy.effective_order == "relaxed")
            turn.session.run("cursor_wake", {"lane": ref.lane, "at": ready, "relaxed": relaxed})
            turn.wake(owner.name, len(waiting))

    def reset(self) -> None:
        """Forget everything: what was collected is undone."""
        self._lanes.clear()
        self._waiting.clear()


def _chunks(waiting: list[Packed]) -> list[list[Packed]]:
    """Cut into segments of bounded length and size; a large payload stands alone."""
    if len(waiting) <= MAX_MESSAGES and sum(len(p[2]) for p in waiting) <= MAX_BYTES:
        return [waiting]
    chunks: list[list[Packed]] = [[]]
    size = 0
    for packed in waiting:
        if chunks[-1] and (len(chunks[-1]) >= MAX_MESSAGES or size + len(packed[2]) > MAX_BYTES):
            chunks.append([])
            size = 0
        chunks[-1].append(packed)
        size += len(packed[2])
    return chunks


def push_now(turn: Turn, commands: list[Push], on_duplicate: str) -> list[Receipts]:
    """Pushes of a transaction: written at once, so that its savepoint covers them."""
    appender = Appender(turn)
    receipts = [appender.push(command, on_duplicate=on_duplicate) for command in commands]
    appender.flush()
    return receipts
