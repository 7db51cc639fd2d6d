"""Spellings of ids: message ids (UUIDv7 as integers inside, text outside), lease ids and delivery ids."""

from __future__ import annotations

import re
from typing import NamedTuple

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LEASE = re.compile(r"L([0-9a-z]{1,13})-([0-9a-f]{8})")
_DELIVERY = re.compile(r"L([0-9a-z]{1,13})-([0-9a-f]{8})\.([0-9a-z]{1,13})\.([0-9a-z]{1,13})")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SEQ = re.compile(r"[0-9a-z]{1,12}")
_LARGEST = 2**63 - 1
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_LOW = (1 << 48) - 1


class DeliveryKey(NamedTuple):
    """What a delivery id says: which attempt (lease) of which message (lane, seq)."""

    lease: int
    tag: int
    lane: int
    seq: int


def uuid_text(value: int) -> str:
    """A 128-bit integer in the usual 8-4-4-4-12 spelling."""
    h = f"{value:032x}"
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def uuid_texts(first: int, count: int) -> list[str]:
    """The spellings of ids that count up from `first`: all but the last group is the same unless that overflows."""
    low = first & _LOW
    if low + count > _LOW:
        return [uuid_text(first + i) for i in range(count)]
    front = uuid_text(first)[:24]
    return [f"{front}{number:012x}" for number in range(low, low + count)]


def uuid_int(text: str) -> int | None:
    """The integer behind a canonical lower-case UUID, None for any other text."""
    return int(text.replace("-", ""), 16) if len(text) == 36 and _UUID.fullmatch(text) else None


def looks_minted(text: str) -> bool:
    """Whether a transaction id may be one that was minted here: those are UUIDv7 message ids."""
    return len(text) == 36 and text[14] == "7"


def uuid7(unix_millis: int, random_bits: int) -> int:
    """A UUIDv7 whose low 61 bits leave room to count upwards within a batch."""
    rand_a = (random_bits >> 61) & 0xFFF
    rand_b = random_bits & ((1 << 61) - 1)
    return (unix_millis & ((1 << 48) - 1)) << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b


def minted_at(uuid: int) -> int:
    """The latest microsecond at which this UUIDv7 can have been minted."""
    return (uuid >> 80) * 1000 + 999


def lease_id(no: int, tag: int) -> str:
    return f"L{base36(no)}-{tag:08x}"


def default_owner(no: int) -> str:
    """Who holds a lease that was claimed without an owner: nobody but the lease itself."""
    return f"lease-{no}"


def connection_owner(instance: str, number: int) -> str:
    """Who holds what was handed to a connection: its leases end with it, and with the broker it leads to."""
    return f"{connection_prefix(instance)}{number}"


def connection_prefix(instance: str) -> str:
    """What the owners that are connections to one broker begin with."""
    return f"connection-{instance}-"


def parse_lease_id(text: object) -> tuple[int, int] | None:
    """(no, tag), or None when this is no lease id of ours."""
    found = _LEASE.fullmatch(text) if isinstance(text, str) else None
    if found is None or (no := int(found[1], 36)) > _LARGEST:
        return None
    return no, int(found[2], 16)


def delivery_id(no: int, tag: int, lane: int, seq: int) -> str:
    return delivery_prefix(no, tag, lane) + base36(seq)


def delivery_prefix(no: int, tag: int, lane: int) -> str:
    """What the deliveries of one lane under one lease share; the seq follows."""
    return f"L{base36(no)}-{tag:08x}.{base36(lane)}."


def delivery_ids(no: int, tag: int, lane: int, lo: int, hi: int) -> list[str]:
    """The ids of deliveries [lo, hi) of a lane; what they share is written once for every 1,296."""
    prefix = delivery_prefix(no, tag, lane)
    found: list[str] = []
    while lo < hi:
        block, at = divmod(lo, 1296)
        end = min(1296, at + hi - lo)
        if block:
            head = prefix + base36(block)
            found += [head + pair for pair in _PAIRS[at:end]]
        else:
            found += [prefix + base36(seq) for seq in range(at, end)]
        lo += end - at
    return found


def parse_delivery_id(text: object) -> DeliveryKey | None:
    """None when this is no delivery id of ours."""
    found = _DELIVERY.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    key = DeliveryKey(int(found[1], 36), int(found[2], 16), int(found[3], 36), int(found[4], 36))
    return key if max(key) <= _LARGEST else None


def parse_seq(text: str) -> int | None:
    """What stands behind the last point of a delivery id; None when it has to be looked at more closely."""
    return int(text, 36) if _SEQ.fullmatch(text) else None


def base36(value: int) -> str:
    """A number as ids spell it."""
    digits = ""
    while True:
        value, rest = divmod(value, 36)
        digits = _DIGITS[rest] + digits
        if not value:
            return digits
