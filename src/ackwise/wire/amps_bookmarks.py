"""AMPS bookmarks: one text per delivery."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache

from ackwise.core import ids
from ackwise.core.commands import ByRange
from ackwise.core.ids import DeliveryKey
from ackwise.core.validation import LAST_INSTANT
from ackwise.wire.timestamps import EPOCH

_FORM = re.compile(r"([0-9]{1,29})\|([0-9]{1,19})\|")
_TAG_BITS, _SEQ_BITS = 32, 40


def front(lease: int, tag: int) -> str:
    """Common prefix of the bookmarks of one lease."""
    return f"{lease << _TAG_BITS | tag}|"


def place(lane: int, seq: int) -> int:
    return lane << _SEQ_BITS | seq


def parse(text: str) -> DeliveryKey | None:
    """The delivery that a bookmark names. None if the text is no bookmark."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    lease, at = int(match[1]), int(match[2])
    tag, seq = lease & (1 << _TAG_BITS) - 1, at & (1 << _SEQ_BITS) - 1
    return DeliveryKey._make((lease >> _TAG_BITS, tag, at >> _SEQ_BITS, seq))


def ranges(texts: Iterable[str]) -> list[tuple[int, ByRange]]:
    """Ranges that bookmarks name, each with its lease number. Removes duplicates and joins neighbours."""
    keys = sorted({key for key in map(parse, texts) if key is not None})
    joined: list[tuple[int, ByRange]] = []
    for lease, tag, lane, seq in keys:
        last = joined[-1][1] if joined else None
        name = ids.lease_id(lease, tag)
        if last is not None and (last.lease_id, last.lane, last.hi) == (name, lane, seq):
            joined[-1] = (lease, ByRange(name, lane, last.lo, seq + 1))
        else:
            joined.append((lease, ByRange(name, lane, seq, seq + 1)))
    return joined


@lru_cache(maxsize=1024)
def stamp(at: int) -> str:
    """An instant as `20251231T235959.000000Z`."""
    return (EPOCH + timedelta(microseconds=min(at, LAST_INSTANT))).strftime("%Y%m%dT%H%M%S.%fZ")
