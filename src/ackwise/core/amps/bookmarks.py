"""Bookmarks: `<n>|<seq>|`, the name of one delivery in digits. n holds the lease, seq the lane and the place in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache

from ackwise.core import ids
from ackwise.core.commands import ByRange
from ackwise.core.ids import DeliveryKey
from ackwise.core.limits import LAST_INSTANT
from ackwise.core.native.instants import EPOCH

_FORM = re.compile(r"([0-9]{1,29})\|([0-9]{1,19})\|")
_TAG_BITS, _SEQ_BITS = 32, 40


def front(lease: int, tag: int) -> str:
    """What the bookmarks of one lease begin with."""
    return f"{lease << _TAG_BITS | tag}|"


def place(lane: int, seq: int) -> int:
    return lane << _SEQ_BITS | seq


def parse(text: str) -> DeliveryKey | None:
    """None when this is no bookmark of ours."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    lease, at = int(found[1]), int(found[2])
    return DeliveryKey(lease >> _TAG_BITS, lease & (1 << _TAG_BITS) - 1, at >> _SEQ_BITS, at & (1 << _SEQ_BITS) - 1)


def ranges(texts: Iterable[str]) -> list[tuple[int, ByRange]]:
    """What a list of bookmarks names, each once and neighbours together, with the number of its lease."""
    keys = sorted({key for key in map(parse, texts) if key is not None})
    found: list[tuple[int, ByRange]] = []
    for lease, tag, lane, seq in keys:
        last = found[-1][1] if found else None
        name = ids.lease_id(lease, tag)
        if last is not None and (last.lease_id, last.lane, last.hi) == (name, lane, seq):
            found[-1] = (lease, ByRange(name, lane, last.lo, seq + 1))
        else:
            found.append((lease, ByRange(name, lane, seq, seq + 1)))
    return found


@lru_cache(maxsize=1024)
def stamp(at: int) -> str:
    """An instant as `20251231T235959.000000Z`."""
    return (EPOCH + timedelta(microseconds=min(at, LAST_INSTANT))).strftime("%Y%m%dT%H%M%S.%fZ")
