"""Results of queries, with datetimes instead of microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

import msgspec

from ackwise.client.payloads import decode_json
from ackwise.core import rows
from ackwise.core.validation import MICROS
from ackwise.wire.timestamps import moment

T = TypeVar("T", bound=msgspec.Struct)
_INSTANTS = frozenset({"minute", "deadline", "failing_since"})


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue and its settings. `created` is true if this call created the queue."""

    name: str
    id: int
    namespace: str
    task: str
    policy: dict[str, object]
    paused: bool
    created_at: datetime
    created: bool


class BrowsedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A stored message that was read and not claimed. `state` is its state for the given group."""

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


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a group gave up. It is delivered again only after a redrive or a replay."""

    id: str
    queue: str
    partition: str
    partition_id: str
    group: str
    seq: int
    message_id: str
    transaction_id: str
    reason: str
    error: str
    error_type: str
    failures: int
    deliveries: int
    history: list[dict[str, object]]
    payload: bytes
    headers: dict[str, str]
    content_type: str
    created_at: datetime
    dead_at: datetime

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


class GroupStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a group: lag = unread + held."""

    queue: str
    group: str
    acked: int
    dead: int
    skipped: int
    expired: int
    held: int
    unread: int
    leases: int
    oldest_unfinished_at: datetime | None
    members: list[str]

    @property
    def lag(self) -> int:
        """Number of messages that the group has not finished."""
        return self.unread + self.held


class CursorRow(msgspec.Struct, frozen=True, kw_only=True):
    """A group's position in one lane."""

    partition: str
    partition_id: str
    priority: int
    lane: int
    start: int
    head: int
    epoch: int
    first: int
    next: int
    held: int
    acked: int
    dead: int
    skipped: int
    expired: int
    leased: int
    ready_at: datetime | None


class LeaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A lease. It was granted for `granted` messages and holds `held` of them now."""

    lease_id: str
    queue: str
    group: str
    owner: str
    key: str | None
    made_at: datetime
    deadline: datetime
    ended_at: datetime | None
    end_kind: str | None
    granted: int
    held: int


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """Count of one outcome in one minute. `latency` maps an upper bound in seconds to the number of messages below."""

    queue: str
    group: str
    minute: datetime
    outcome: str
    count: int
    latency: dict[float, int]


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a queue and its groups."""

    queue: str
    partitions: int
    lanes: int
    messages: int
    scheduled: int
    dead: int
    groups: list[GroupStats]


def as_result(row: msgspec.Struct, kind: type[T]) -> T:
    """Convert a query's row to `kind`, with datetimes and seconds instead of microseconds."""
    return kind(**{name: _value(name, getattr(row, name)) for name in kind.__struct_fields__})


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name.endswith("_at") or name in _INSTANTS:
        return moment(value)
    if name == "latency":
        return {bound / MICROS: count for bound, count in value.items()}
    if name == "groups":
        return [as_result(group, GroupStats) for group in value]
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
