"""Ids: their types, and how texts of message, lease and delivery ids are formatted and parsed."""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

LaneId = NewType("LaneId", int)
"""Number of a lane."""
GroupId = NewType("GroupId", int)
"""Number of a group."""
LeaseNo = NewType("LeaseNo", int)
"""Number of a lease. Numbers only rise."""
Seq = NewType("Seq", int)
"""Position of a message in its lane."""
Micros = NewType("Micros", int)
"""An instant: microseconds since 1970, UTC."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LEASE = re.compile(r"L([0-9a-z]{1,13})-([0-9a-f]{8})")
_DELIVERY = re.compile(r"L([0-9a-z]{1,13})-([0-9a-f]{8})\.([0-9a-z]{1,13})\.([0-9a-z]{1,13})")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SEQ = re.compile(r"[0-9a-z]{1,12}")
_LARGEST = 2**63 - 1
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_LOW = (1 << 48) - 1


class DeliveryKey(NamedTuple):
    """Content of a delivery id: the attempt (lease) and the message (lane, seq)."""

    lease: LeaseNo
    tag: int
    lane: LaneId
    seq: Seq


def uuid_text(value: int) -> str:
    """A 128-bit integer as UUID text."""
    h = f"{value:032x}"
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def uuid_texts(first: int, count: int) -> list[str]:
    """UUID texts of `count` consecutive ids. They differ only in the last group, unless it overflows."""
    low = first & _LOW
    if low + count > _LOW:
        return [uuid_text(first + i) for i in range(count)]
    front = uuid_text(first)[:24]
    return [f"{front}{number:012x}" for number in range(low, low + count)]


def uuid_int(text: str) -> int | None:
    """The integer of a canonical lower-case UUID. None for any other text."""
    return int(text.replace("-", ""), 16) if len(text) == 36 and _UUID.fullmatch(text) else None


def looks_minted(text: str) -> bool:
    """Whether a transaction id may be a message id of Ackwise, which is a UUIDv7."""
    return len(text) == 36 and text[14] == "7"


def uuid7(unix_millis: int, random_bits: int) -> int:
    """A UUIDv7 whose low 61 bits leave room to count up within a batch."""
    rand_a = (random_bits >> 61) & 0xFFF
    rand_b = random_bits & ((1 << 61) - 1)
    return (unix_millis & ((1 << 48) - 1)) << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b


def minted_at(uuid: int) -> int:
    """The latest instant at which this UUIDv7 can have been created."""
    return (uuid >> 80) * 1000 + 999


def lease_id(no: int, tag: int) -> str:
    return f"L{base36(no)}-{tag:08x}"


def default_owner(no: int) -> str:
    """Owner of a lease that was claimed without one. It is unique to the lease."""
    return f"lease-{no}"


def connection_owner(instance: str, number: int) -> str:
    """Owner of a connection's leases. They end with the connection, or with its broker."""
    return f"{connection_prefix(instance)}{number}"


def connection_prefix(instance: str) -> str:
    """Prefix of the owners that are connections to one broker."""
    return f"connection-{instance}-"


def parse_lease_id(text: object) -> tuple[LeaseNo, int] | None:
    """(no, tag) of a lease id. None if the text is no lease id."""
    match = _LEASE.fullmatch(text) if isinstance(text, str) else None
    if match is None or (no := int(match[1], 36)) > _LARGEST:
        return None
    return LeaseNo(no), int(match[2], 16)


def delivery_id(no: int, tag: int, lane: int, seq: int) -> str:
    return delivery_prefix(no, tag, lane) + base36(seq)


def delivery_prefix(no: int, tag: int, lane: int) -> str:
    """Common prefix of the delivery ids of one lane and lease. The seq follows."""
    return f"L{base36(no)}-{tag:08x}.{base36(lane)}."


def delivery_ids(no: int, tag: int, lane: int, lo: int, hi: int) -> list[str]:
    """Delivery ids of messages [lo, hi) of a lane. Builds the common prefix once per 1,296 ids."""
    prefix = delivery_prefix(no, tag, lane)
    spelled: list[str] = []
    while lo < hi:
        block, at = divmod(lo, 1296)
        end = min(1296, at + hi - lo)
        if block:
            head = prefix + base36(block)
            spelled += [head + pair for pair in _PAIRS[at:end]]
        else:
            spelled += [prefix + base36(seq) for seq in range(at, end)]
        lo += end - at
    return spelled


def parse_delivery_id(text: object) -> DeliveryKey | None:
    """The content of a delivery id. None if the text is no delivery id."""
    match = _DELIVERY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    key = DeliveryKey._make((int(match[1], 36), int(match[2], 16), int(match[3], 36), int(match[4], 36)))
    return key if max(key) <= _LARGEST else None


def parse_seq(text: str) -> int | None:
    """The seq after the last dot of a delivery id. None if the whole id must be parsed."""
    return int(text, 36) if _SEQ.fullmatch(text) else None


def base36(value: int) -> str:
    """A number in base 36, as ids contain it."""
    digits = ""
    while True:
        value, rest = divmod(value, 36)
        digits = _DIGITS[rest] + digits
        if not value:
            return digits
