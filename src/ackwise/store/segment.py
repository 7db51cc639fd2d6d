"""How messages are packed into segments: Arrow's own layout of int32 offsets and bytes, so readers need not touch a message.

body = header | ids (16 bytes when counted up from one, else 16 each) | transaction ids | payloads | extras,
each of the last three as n + 1 int32 offsets and the bytes. `extras` (headers, content type) is left out when all are plain.
"""

from __future__ import annotations

import struct
import sys
from array import array
from itertools import accumulate

import msgspec

from ackwise.core.ids import uuid_int
from ackwise.core.messages import JSON, Message

SEQ_BITS = 40
MAX_MESSAGES = 256
MAX_BYTES = 64 * 1024
_HEADER = struct.Struct("<BBHIIII")
_VERSION = 1
_EXPLICIT_IDS, _HAS_EXTRAS, _HUSK = 1, 2, 4
_SWAP = sys.byteorder == "big"

Packed = tuple[int, str, bytes, bytes]
"""id, transaction id ("" when it is the id), payload, extras."""


def place(lane: int, seq: int) -> int:
    """A message's or segment's place as one integer."""
    return lane << SEQ_BITS | seq


def place_lane(pos: int) -> int:
    return pos >> SEQ_BITS


def place_seq(pos: int) -> int:
    return pos & ((1 << SEQ_BITS) - 1)


def bounds(lane: int, lo: int, hi: int) -> dict[str, int]:
    """Parameters that find every segment with a seq of [lo, hi): no segment is longer than MAX_MESSAGES."""
    return {"lo_pos": place(lane, lo), "end_pos": min(place(lane, hi + MAX_MESSAGES), place(lane + 1, 0))}


def to_end(lane: int, lo: int) -> dict[str, int]:
    return {"lo_pos": place(lane, lo), "end_pos": place(lane + 1, 0)}


class Extras(msgspec.Struct, omit_defaults=True):
    """What few messages have."""

    headers: dict[str, str] = {}
    content_type: str = JSON


def pack_extras(headers: dict[str, str] | None, content_type: str) -> bytes:
    if not headers and content_type == JSON:
        return b""
    return msgspec.json.encode(Extras(headers or {}, content_type))


def _column(values: list[bytes]) -> tuple[bytes, bytes]:
    offsets = array("i", accumulate(map(len, values), initial=0))
    if _SWAP:
        offsets.byteswap()
    return offsets.tobytes(), b"".join(values)


def pack(messages: list[Packed], *, husk: bool = False) -> bytes:
    """The body of a segment."""
    first = messages[0][0]
    numbers = [m[0] for m in messages]
    counted = numbers == list(range(first, first + len(numbers)))
    extras = [m[3] for m in messages]
    has_extras = any(extras) and not husk
    flags = (0 if counted else _EXPLICIT_IDS) | (_HAS_EXTRAS if has_extras else 0) | (_HUSK if husk else 0)
    names = b"".join(n.to_bytes(16, "big") for n in (numbers[:1] if counted else numbers))
    tx_at, tx = _column([m[1].encode() for m in messages])
    pay_at, pay = _column([b"" if husk else m[2] for m in messages])
    ext_at, ext = _column(extras) if has_extras else (b"", b"")
    head = _HEADER.pack(_VERSION, flags, 0, len(messages), len(tx), len(pay), len(ext))
    return b"".join((head, names, tx_at, tx, pay_at, pay, ext_at, ext))


class Segment:
    """A packed run of messages [first, last] of a lane, read without copying until a message is asked for."""

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
    )

    def __init__(self, pos: int, first: int, created_at: int, body: bytes) -> None:
        version, self._flags, _, self.n, tx_len, pay_len, _ = _HEADER.unpack_from(body)
        if version != _VERSION:
            raise ValueError(f"segment layout {version} is not known")
        self.lane, self.last = place_lane(pos), place_seq(pos)
        self.first, self.created_at, self._body = first, created_at, body
        self._ids_at = _HEADER.size
        offsets = 4 * (self.n + 1)
        self._tx_at = self._ids_at + (16 * self.n if self._flags & _EXPLICIT_IDS else 16)
        self._pay_at = self._tx_at + offsets + tx_len
        self._ext_at = self._pay_at + offsets + pay_len

    def __len__(self) -> int:
        return len(self._body)

    def id_int(self, seq: int) -> int:
        index = seq - self.first
        if self._flags & _EXPLICIT_IDS:
            at = self._ids_at + 16 * index
            return int.from_bytes(self._body[at : at + 16], "big")
        return int.from_bytes(self._body[self._ids_at : self._ids_at + 16], "big") + index

    def _cell(self, column: int, index: int) -> bytes:
        lo, hi = struct.unpack_from("<ii", self._body, column + 4 * index)
        base = column + 4 * (self.n + 1)
        return self._body[base + lo : base + hi]

    def txid(self, seq: int) -> str:
        """The transaction id, "" when it is the message id."""
        return self._cell(self._tx_at, seq - self.first).decode()

    def payload(self, seq: int) -> bytes:
        return self._cell(self._pay_at, seq - self.first)

    def extras(self, seq: int) -> Extras:
        raw = self._cell(self._ext_at, seq - self.first) if self._flags & _HAS_EXTRAS else b""
        return msgspec.json.decode(raw, type=Extras) if raw else Extras()

    def packed(self, seq: int) -> Packed:
        extras = self.extras(seq)
        return self.id_int(seq), self.txid(seq), self.payload(seq), pack_extras(extras.headers, extras.content_type)

    def message(self, seq: int) -> Message:
        extras = self.extras(seq)
        return Message(
            self.lane,
            seq,
            self.id_int(seq),
            self.txid(seq),
            self.payload(seq),
            extras.headers,
            extras.content_type,
            self.created_at,
        )

    def matches(self, seq: int, transaction_id: str) -> bool:
        """Whether the message at `seq` was pushed with this transaction id."""
        own = self.txid(seq)
        return own == transaction_id if own else uuid_int(transaction_id) == self.id_int(seq)

    def husk(self) -> bytes:
        """Ids only: what dedupe needs after the payloads are gone."""
        return pack([self.packed(seq) for seq in range(self.first, self.last + 1)], husk=True)


def one(message: Message) -> bytes:
    """A segment body with a single message: the snapshot in a dead letter."""
    return pack([(message.id_int, message.txid, message.payload, pack_extras(message.headers, message.content_type))])


def snapshot(lane: int, seq: int, created_at: int, body: bytes) -> Message:
    """The message inside a snapshot."""
    return Segment(place(lane, seq), seq, created_at, body).message(seq)
