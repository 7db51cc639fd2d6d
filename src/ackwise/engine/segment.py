"""Packs messages into segments, reads their columns, keeps recent segments in memory.

body = header | ids | transaction ids | payloads | extras

The ids are 16 bytes if they are consecutive, else 16 bytes per message. Each of the last three parts is n + 1 int32
offsets and the bytes. A body has `extras` (headers, content type) only if a message has some.
"""

from __future__ import annotations

import struct
import sys
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Protocol

import msgspec

from ackwise.core.ids import uuid_int
from ackwise.core.lane_range import LaneRange
from ackwise.core.messages import JSON, Extras, Message

SEQ_BITS = 40
_SEQ_MASK = (1 << SEQ_BITS) - 1
MAX_MESSAGES = 256
MAX_BYTES = 64 * 1024
PER_MESSAGE = 64
"""Approximate bytes that a message takes in a segment besides its payload and its extras."""
_HEADER = struct.Struct("<BBHIIII")
_TWO = struct.Struct("<ii")
_PLAIN = Extras()
_extras = msgspec.json.Decoder(Extras).decode
_VERSION = 1
_EXPLICIT_IDS, _HAS_EXTRAS, _HUSK = 1, 2, 4
_SWAP = sys.byteorder == "big"


def place(lane: int, seq: int) -> int:
    """Lane and seq of a message, or of a segment's last message, as one integer."""
    return lane << SEQ_BITS | seq


def place_lane(pos: int) -> int:
    return pos >> SEQ_BITS


def place_seq(pos: int) -> int:
    return pos & _SEQ_MASK


def bounds(lane: int, lo: int, hi: int) -> dict[str, int]:
    """Statement parameters that find every segment with a message of [lo, hi). No segment exceeds MAX_MESSAGES."""
    return {"lo_pos": place(lane, lo), "end_pos": min(place(lane, hi + MAX_MESSAGES), place(lane + 1, 0))}


def to_end(lane: int, lo: int) -> dict[str, int]:
    """Statement parameters that find the segments of a lane from `lo` on."""
    return {"lo_pos": place(lane, lo), "end_pos": place(lane + 1, 0)}


def pack_extras(headers: dict[str, str] | None, content_type: str) -> bytes:
    if not headers and content_type == JSON:
        return b""
    return msgspec.json.encode(Extras(headers or {}, content_type))


class MessageColumns:
    """Messages to pack, as columns: ids as (first, count) runs, the rest as lists."""

    __slots__ = ("_longest", "extras", "payloads", "runs", "txids")

    def __init__(self, first: int, txids: list[str], payloads: list[bytes], extras: list[bytes] | None = None) -> None:
        self.runs = [(first, len(txids))]
        self.txids, self.payloads = txids, payloads
        self.extras = extras
        self._longest: int | None = None

    def __len__(self) -> int:
        return len(self.txids)

    @property
    def longest(self) -> int:
        """Bytes of the largest payload. A push that knows the number sets it in advance."""
        if self._longest is None:
            self._longest = max(map(len, self.payloads))
        return self._longest

    @longest.setter
    def longest(self, size: int) -> None:
        self._longest = size

    def extend(self, other: MessageColumns) -> None:
        if self.extras is not None or other.extras is not None:
            self.extras = (self.extras or [b""] * len(self)) + (other.extras or [b""] * len(other))
        self._longest = max(self.longest, other.longest)
        self.runs += other.runs
        self.txids += other.txids
        self.payloads += other.payloads

    def ids(self) -> list[int]:
        return [number for first, count in self.runs for number in range(first, first + count)]

    def part(self, lo: int, hi: int) -> MessageColumns:
        """The messages at indexes [lo, hi)."""
        piece = MessageColumns(0, self.txids[lo:hi], self.payloads[lo:hi], self.extras and self.extras[lo:hi])
        piece.runs = []
        at = 0
        for first, count in self.runs:
            begin, end = max(lo, at), min(hi, at + count)
            if begin < end:
                piece.runs.append((first + begin - at, end - begin))
            at += count
        return piece


def _bytes_column(values: list[bytes]) -> tuple[bytes, bytes]:
    return _offsets(map(len, values)), b"".join(values)


def _text_column(values: list[str]) -> tuple[bytes, bytes]:
    joined = "".join(values)
    if joined.isascii():
        return _offsets(map(len, values)), joined.encode()
    return _bytes_column([value.encode() for value in values])


def _offsets(lengths: Iterable[int]) -> bytes:
    offsets = array("i", accumulate(lengths, initial=0))
    if _SWAP:
        offsets.byteswap()
    return offsets.tobytes()


def pack(columns: MessageColumns, *, husk: bool = False) -> bytes:
    """The body of a segment."""
    counted = len(columns.runs) == 1
    extras = None if husk else columns.extras
    flags = (0 if counted else _EXPLICIT_IDS) | (_HAS_EXTRAS if extras is not None else 0) | (_HUSK if husk else 0)
    numbers = [columns.runs[0][0]] if counted else columns.ids()
    names = b"".join([number.to_bytes(16, "big") for number in numbers])
    tx_at, tx = _text_column(columns.txids)
    pay_at, pay = _bytes_column([b""] * len(columns) if husk else columns.payloads)
    ext_at, ext = _bytes_column(extras) if extras is not None else (b"", b"")
    head = _HEADER.pack(_VERSION, flags, 0, len(columns), len(tx), len(pay), len(ext))
    return b"".join((head, names, tx_at, tx, pay_at, pay, ext_at, ext))


def largest(columns: MessageColumns) -> int:
    """The bytes of the largest message: its payload, its extras and the approximate size of its ids."""
    extras = max(map(len, columns.extras)) if columns.extras else 0
    return columns.longest + extras + PER_MESSAGE


class Segment:
    """Packed messages [first, last] of a lane, in `size` bytes. Unpacks a cell only when you read it."""

    __slots__ = (
        "_body",
        "_ext_at",
        "_flags",
        "_ids_at",
        "_pay_at",
        "_tx_at",
        "created_at",
        "first",
        "lane",
        "last",
        "n",
        "size",
    )

    def __init__(self, pos: int, first: int, created_at: int, body: bytes) -> None:
        version, self._flags, _, self.n, tx_len, pay_len, _ = _HEADER.unpack_from(body)
        if version != _VERSION:
            raise ValueError(f"unknown segment layout {version}")
        self.lane, self.last = pos >> SEQ_BITS, pos & _SEQ_MASK
        self.first, self.created_at, self._body, self.size = first, created_at, body, len(body)
        self._ids_at = _HEADER.size
        offsets = 4 * (self.n + 1)
        self._tx_at = self._ids_at + (16 * self.n if self._flags & _EXPLICIT_IDS else 16)
        self._pay_at = self._tx_at + offsets + tx_len
        self._ext_at = self._pay_at + offsets + pay_len

    def id_int(self, seq: int) -> int:
        index = seq - self.first
        if self._flags & _EXPLICIT_IDS:
            at = self._ids_at + 16 * index
            return int.from_bytes(self._body[at : at + 16], "big")
        return int.from_bytes(self._body[self._ids_at : self._ids_at + 16], "big") + index

    def _cell(self, column: int, index: int) -> bytes:
        lo, hi = _TWO.unpack_from(self._body, column + 4 * index)
        base = column + 4 * (self.n + 1)
        return self._body[base + lo : base + hi]

    def txid(self, seq: int) -> str:
        """The transaction id, or "" if the message id stands for it."""
        return self._cell(self._tx_at, seq - self.first).decode()

    def payload(self, seq: int) -> bytes:
        return self._cell(self._pay_at, seq - self.first)

    def extras(self, seq: int) -> Extras:
        raw = self._cell(self._ext_at, seq - self.first) if self._flags & _HAS_EXTRAS else b""
        return _extras(raw) if raw else _PLAIN

    def cells(self, lo: int, hi: int) -> tuple[list[int], list[str], list[bytes], list[bytes] | None]:
        """(ids, transaction ids, payloads, extras or None) of messages [lo, hi)."""
        at, count = lo - self.first, hi - lo
        if self._flags & _EXPLICIT_IDS:
            numbers = [self.id_int(seq) for seq in range(lo, hi)]
        else:
            first = self.id_int(lo)
            numbers = list(range(first, first + count))
        txids = [cell.decode() for cell in self._cells(self._tx_at, at, count)]
        extras = self._cells(self._ext_at, at, count) if self._flags & _HAS_EXTRAS else None
        return numbers, txids, self._cells(self._pay_at, at, count), extras

    def _cells(self, column: int, at: int, count: int) -> list[bytes]:
        offsets = array("i")
        offsets.frombytes(self._body[column + 4 * at : column + 4 * (at + count + 1)])
        if _SWAP:
            offsets.byteswap()
        base, body = column + 4 * (self.n + 1), self._body
        return [body[base + lo : base + hi] for lo, hi in pairwise(offsets)]

    @property
    def counts_up(self) -> bool:
        """Whether the message ids are consecutive."""
        return not self._flags & _EXPLICIT_IDS

    def packed_ids(self, lo: int, hi: int) -> bytes:
        """The ids of messages [lo, hi), 16 bytes each. Only for a segment whose ids are not consecutive."""
        return self._body[self._ids_at + 16 * (lo - self.first) : self._ids_at + 16 * (hi - self.first)]

    def packed(self, column: str, lo: int, hi: int) -> tuple[bytes, memoryview] | None:
        """The packed cells of messages [lo, hi): int32 offsets, and the bytes between the first and the last offset.

        `column` is `txid`, `payload` or `extras`. None if no message of the segment has extras.
        """
        if column == "extras" and not self._flags & _HAS_EXTRAS:
            return None
        where = {"txid": self._tx_at, "payload": self._pay_at, "extras": self._ext_at}[column]
        at = where + 4 * (lo - self.first)
        offsets = self._body[at : at + 4 * (hi - lo + 1)]
        start, end = _TWO.unpack(offsets[:4] + offsets[-4:])
        base = where + 4 * (self.n + 1)
        return offsets, memoryview(self._body)[base + start : base + end]

    def columns(self) -> MessageColumns:
        """All messages as columns, to pack them again."""
        seqs = range(self.first, self.last + 1)
        raw = [self._cell(self._ext_at, i) for i in range(self.n)] if self._flags & _HAS_EXTRAS else None
        unpacked = MessageColumns(0, [self.txid(seq) for seq in seqs], [self.payload(seq) for seq in seqs], raw)
        unpacked.runs = (
            [(self.id_int(seq), 1) for seq in seqs]
            if self._flags & _EXPLICIT_IDS
            else [(self.id_int(self.first), self.n)]
        )
        return unpacked

    def message(self, seq: int) -> Message:
        return Message(self, self.lane, seq, self.created_at)

    def matches(self, seq: int, transaction_id: str) -> bool:
        """Whether the message at `seq` has this transaction id."""
        own = self.txid(seq)
        return own == transaction_id if own else uuid_int(transaction_id) == self.id_int(seq)

    def husk(self) -> bytes:
        """The body without payloads: the ids, which dedupe needs after retention."""
        return pack(self.columns(), husk=True)


def pack_message(message: Message) -> bytes:
    """A segment body with a single message, the snapshot in a dead letter."""
    extras = pack_extras(message.headers, message.content_type)
    return pack(MessageColumns(message.id_int, [message.txid], [message.payload], [extras] if extras else None))


def snapshot(lane: int, seq: int, created_at: int, body: bytes) -> Message:
    """The message inside a snapshot."""
    return Segment(place(lane, seq), seq, created_at, body).message(seq)


class ReadSegments(Protocol):
    """The segments of each range (lane, lo, hi), without pruned segments.

    With `room` only the first segments of each range that fit this many bytes. At least one fits.
    """

    def __call__(self, ranges: Sequence[LaneRange], room: int | None = None) -> list[list[Segment]]: ...


class SegmentCache:
    """Segments kept in memory, up to `most` bytes. `load` reads the others from the database.

    The newest segments serve consumers that follow a producer closely. The last segment read of each lane serves
    consumers that take a few messages of a segment at a time.
    """

    def __init__(self, most: int, load: ReadSegments) -> None:
        self._most, self._size, self._load = most, 0, load
        self._segments: OrderedDict[tuple[int, int], Segment] = OrderedDict()
        self._last: dict[int, Segment] = {}
        self._last_size = 0
        self._lock = threading.Lock()

    def read(self, ranges: Sequence[LaneRange], room: int | None = None) -> list[list[Segment]]:
        """The segments of each range, from memory if all of them are there."""
        cached: list[list[Segment]] = []
        for lane, lo, hi in ranges if room is None else ():
            segments = self.get(lane, lo, hi)
            if segments is None:
                break
            cached.append(segments)
        if len(cached) == len(ranges):
            return cached
        loaded = self._load(ranges, room)
        for (_, _, hi), segments in zip(ranges, loaded, strict=True):
            if segments and hi <= segments[-1].last:
                self.put_last_read(segments[-1])
        return loaded

    def put(self, segment: Segment) -> None:
        with self._lock:
            self._segments[segment.lane, segment.first] = segment
            self._size += segment.size
            while self._size > self._most:
                _, old = self._segments.popitem(last=False)
                self._size -= old.size

    def get(self, lane: int, lo: int, hi: int) -> list[Segment] | None:
        """The segments of messages [lo, hi). None if one is not in memory."""
        segments = []
        while lo < hi:
            segment = self._segments.get((lane, lo)) or self._last.get(lane)
            if segment is None or not segment.first <= lo <= segment.last:
                return None
            segments.append(segment)
            lo = segment.last + 1
        if segments and hi <= segments[-1].last:
            self.put_last_read(segments[-1])
        return segments

    def put_last_read(self, segment: Segment) -> None:
        """Keep a segment that was not read to its end."""
        with self._lock:
            if self._last_size > self._most // 4:
                self._last.clear()
                self._last_size = 0
            if self._last.get(segment.lane) is not segment:
                self._last[segment.lane] = segment
                self._last_size += segment.size
