"""Results of queries: the rows of the core with datetimes instead of microseconds, and messages that decode JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar, get_origin, overload

import msgspec

from ackwise.client.payloads import decode_json
from ackwise.core import rows
from ackwise.core.answers import QueueInfo
from ackwise.core.rows import (
    ConsumerRow,
    CursorRow,
    DeadKind,
    GroupStats,
    LeaseRow,
    LedgerRow,
    PurgePreview,
    SeekPreview,
    Stats,
    TimeSeries,
)
from ackwise.core.validation import MICROS
from ackwise.wire.timestamps import moment

__all__ = [
    "BrowsedMessage",
    "ConsumerRow",
    "CursorRow",
    "DeadKind",
    "DeadLetter",
    "DeadLetters",
    "GroupStats",
    "LeaseRow",
    "LedgerRow",
    "PurgePreview",
    "QueueInfo",
    "SeekPreview",
    "Stats",
    "TimeSeries",
    "as_result",
    "browsed_message",
]

T = TypeVar("T", bound=msgspec.Struct)
_INSTANTS = frozenset({"minute", "deadline", "failing_since", "until"})


class BrowsedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message that was read and not claimed. `state` is its state for the given group.

    A class of its own, because the row of the core contains a message that unpacks its fields when they are read.
    """

    lane: int
    seq: int
    id: str
    transaction_id: str
    payload: bytes
    headers: dict[str, str]
    content_type: str
    created_at: datetime
    partition: str
    partition_id: str
    priority: int
    state: str | None

    def json(self) -> Any:
        """Decode the payload as JSON. Raises `UndecodablePayload`."""
        return decode_json(self.payload)


class DeadLetter(rows.DeadLetter[datetime], frozen=True):
    """A message that a group gave up. It is delivered again only after a redrive or a replay.

    A class of its own, because `json` decodes the payload as a delivery does.
    """

    def json(self) -> Any:
        """Decode the payload as JSON. Raises `UndecodablePayload`."""
        return decode_json(self.payload)


class DeadLetters(Sequence[DeadLetter]):
    """A page of dead letters, newest first. `total` is the number of all that match."""

    def __init__(self, page: rows.DeadPage) -> None:
        self._letters = [as_result(letter, DeadLetter) for letter in page.letters]
        self.total = page.total

    def __len__(self) -> int:
        return len(self._letters)

    @overload
    def __getitem__(self, index: int) -> DeadLetter: ...
    @overload
    def __getitem__(self, index: slice) -> list[DeadLetter]: ...
    def __getitem__(self, index: int | slice) -> DeadLetter | list[DeadLetter]:
        return self._letters[index]

    def __repr__(self) -> str:
        return f"<DeadLetters {len(self)} of {self.total}>"


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """A hook of a queue's dead letters. `pending` says whether letters wait for it."""

    queue: str
    name: str
    url: str | None
    include_payload: bool
    paused: bool
    error: str
    failures: int
    failing_since: datetime | None
    pending: bool
    created_at: datetime


def as_result(row: msgspec.Struct, kind: type[T]) -> T:
    """Convert a query's row to `kind`, with datetimes and seconds instead of microseconds.

    `kind` is the type of the row with datetimes, such as `LeaseRow[datetime]`, or a subclass.
    """
    names = (get_origin(kind) or kind).__struct_fields__
    return kind(**{name: _value(name, getattr(row, name)) for name in names})


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name.endswith("_at") or name in _INSTANTS:
        return moment(value)
    if name == "latency":
        return {bound / MICROS: count for bound, count in value.items()}
    if name == "groups":
        return [as_result(group, GroupStats[datetime]) if isinstance(group, GroupStats) else group for group in value]
    return value


def browsed_message(row: rows.BrowsedMessage) -> BrowsedMessage:
    """Convert a row of `Browse`."""
    m = row.message
    return BrowsedMessage(
        lane=m.lane,
        seq=m.seq,
        id=m.id,
        transaction_id=m.transaction_id,
        payload=m.payload,
        headers=m.headers,
        content_type=m.content_type,
        created_at=moment(m.created_at),
        partition=row.partition,
        partition_id=row.partition_id,
        priority=row.priority,
        state=row.state,
    )
