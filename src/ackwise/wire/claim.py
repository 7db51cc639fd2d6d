"""Native claim and read requests and answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Literal, TypeVar

import msgspec

from ackwise.core import ids, validation
from ackwise.core.answers import Claimed, Grant, Handed, Settled
from ackwise.core.commands import Claim
from ackwise.core.errors import BadInput, StoreError
from ackwise.core.lane_range import LaneRange
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.messages import QUEUE_MODE, Extras, Message
from ackwise.core.policy import Exclusivity, Order, QueuePolicy
from ackwise.wire import payloads, timestamps
from ackwise.wire.settle import Entry

MAX_WAIT = 60.0
"""Seconds that a poll waits on the server at most. A client that wants to wait longer polls again."""
MAX_AHEAD = 1000

T = TypeVar("T")
_PLAIN = Extras()


class ClaimBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Request body of a claim.

    `settle` adds settlements to the same turn. `ahead` claims that many batches without waiting. `columns` selects the
    answer format of the Ackwise client. `poll` names the claim, so that a later request can stop it. `grants_only`
    leaves the messages out of the answer.
    """

    queue: str | None = None
    namespace: str | None = None
    task: str | None = None
    group: str | None = None
    max: int = 1
    max_bytes: int | None = None
    max_partitions: int | None = None
    partitions: tuple[str, ...] | None = None
    priorities: tuple[int, ...] | None = None
    lease_seconds: float | None = None
    wait_seconds: float = 0.0
    exclusivity: Exclusivity | None = None
    order: Order | None = None
    owner: str | None = None
    key: str | None = None
    auto_ack: bool = False
    bulk: bool = False
    yields: bool = False
    pushed_by: str | None = None
    start: str = "all"
    create: QueuePolicy | None = None
    settle: list[Entry] | None = None
    atomic: bool = False
    detail: bool = False
    ahead: int | None = None
    columns: bool = False
    poll: str | None = None
    grants_only: bool = False


class StopBody(msgspec.Struct, forbid_unknown_fields=True):
    """Names of polls that must return now, without messages."""

    polls: list[str]


class MessageRange(msgspec.Struct, array_like=True):
    """Messages [lo, hi) of a lane with their ids. `ids` is the first id if the ids are consecutive, else a list."""

    lane: int
    lo: int
    hi: int
    stored_at: int
    ids: str | list[str]


class ClaimColumns(msgspec.Struct, Generic[T], omit_defaults=True):
    """A claim's answer as columns, which repeats nothing.

    Instants are microseconds. `extras` maps the index of a message to its extras. `transaction_ids` is empty if no
    message has its own. The server writes `payloads` as one piece. The client reads them one by one.
    """

    group: str
    lease_id: str = ""
    deadline: int = 0
    empty: EmptyReason | None = None
    until: int | None = None
    grants: list[Grant] = []
    runs: list[MessageRange] = []
    transaction_ids: list[str] = []
    extras: dict[int, Extras] = {}
    payloads: T | None = None
    verdicts: list[Settled] = []


class Ahead(msgspec.Struct, Generic[T]):
    """Answer to a claim of several batches."""

    verdicts: list[Settled]
    claims: list[ClaimColumns[T]]


Read = ClaimColumns[list[msgspec.Raw]]
ReadAhead = Ahead[list[msgspec.Raw]]


def command(body: ClaimBody) -> Claim:
    return Claim(
        queue=body.queue,
        namespace=body.namespace,
        task=body.task,
        group=QUEUE_MODE if body.group is None else body.group,
        partitions=body.partitions,
        priorities=body.priorities,
        most=body.max,
        most_bytes=body.max_bytes,
        most_partitions=body.max_partitions,
        lease=None if body.lease_seconds is None else validation.lease_micros(body.lease_seconds),
        exclusivity=body.exclusivity,
        order=body.order,
        owner=body.owner,
        key=body.key,
        auto_ack=body.auto_ack,
        bulk=body.bulk,
        yields=body.yields,
        pushed_by=None if body.pushed_by is None else timestamps.parse(body.pushed_by, "pushed_by"),
        start=_start(body.start),
        create=body.create,
    )


def _start(text: str) -> Literal["all", "new"] | int:
    if text == "all" or text == "new":
        return "all" if text == "all" else "new"
    return timestamps.parse(text, "start")


def wait_of(body: ClaimBody) -> float:
    """Seconds that the poll may wait on this server."""
    return min(validation.micros(body.wait_seconds, "wait_seconds") / validation.MICROS, MAX_WAIT)


def ahead_of(body: ClaimBody) -> int | None:
    if body.ahead is None:
        return None
    if body.wait_seconds:
        raise BadInput("a claim ahead never waits: leave out wait_seconds")
    return validation.count(body.ahead, "ahead", most=MAX_AHEAD)


def check_grants_only(body: ClaimBody) -> None:
    """Raise `BadInput` if a claim of grants only has options that need messages or a wait."""
    for other in ("auto_ack", "settle", "ahead", "wait_seconds"):
        if getattr(body, other) not in (None, False, 0):
            raise BadInput(f"grants_only excludes {other}")


def body(claim: Claim) -> ClaimBody:
    """The request body for a claim."""
    return ClaimBody(
        queue=claim.queue,
        namespace=claim.namespace,
        task=claim.task,
        group=claim.group,
        max=claim.most,
        max_bytes=claim.most_bytes,
        max_partitions=claim.most_partitions,
        partitions=claim.partitions,
        priorities=claim.priorities,
        lease_seconds=None if claim.lease is None else claim.lease / validation.MICROS,
        exclusivity=claim.exclusivity,
        order=claim.order,
        owner=claim.owner,
        key=claim.key,
        auto_ack=claim.auto_ack,
        bulk=claim.bulk,
        yields=claim.yields,
        pushed_by=None if claim.pushed_by is None else timestamps.text(claim.pushed_by),
        start=claim.start if isinstance(claim.start, str) else timestamps.text(claim.start),
        create=claim.create,
        columns=True,
        detail=True,
    )


class _Source:
    """The messages of one range, as the client received them."""

    __slots__ = ("_at", "_columns", "_first", "_lo", "_numbers")

    def __init__(self, columns: Read, run: MessageRange, at: int) -> None:
        self._columns, self._lo, self._at = columns, run.lo, at
        self._first = _number(run.ids) if isinstance(run.ids, str) else 0
        self._numbers = None if isinstance(run.ids, str) else [_number(text) for text in run.ids]

    def id_int(self, seq: int) -> int:
        index = seq - self._lo
        return self._first + index if self._numbers is None else self._numbers[index]

    def txid(self, seq: int) -> str:
        txids = self._columns.transaction_ids
        return txids[self._at + seq - self._lo] if txids else ""

    def payload(self, seq: int) -> bytes:
        index = self._at + seq - self._lo
        assert self._columns.payloads is not None
        return payloads.from_request(
            self._columns.payloads[index], self._columns.extras.get(index, _PLAIN).content_type
        )

    def extras(self, seq: int) -> Extras:
        return self._columns.extras.get(self._at + seq - self._lo, _PLAIN)


def _number(text: str) -> int:
    number = ids.uuid_int(text)
    if number is None:
        raise StoreError("the server's answer contains an invalid message id")
    return number


def handed(columns: Read) -> Handed:
    """The claim and its messages from a server's answer."""
    no, tag = ids.parse_lease_id(columns.lease_id) or (0, 0)
    claimed = Claimed(columns.group, columns.grants, no, tag, columns.deadline, columns.empty, columns.until)
    size = sum(run.hi - run.lo for run in columns.runs)
    wanted = len(columns.payloads or ())
    if size != wanted or len(columns.transaction_ids) not in (0, size):
        raise StoreError("the server's answer to a claim has columns of different lengths")
    return Handed(claimed, list(_messages(columns)))


def _messages(columns: Read) -> Iterator[Message]:
    at = 0
    for run in columns.runs:
        source = _Source(columns, run, at)
        for seq in range(run.lo, run.hi):
            yield Message(source, run.lane, seq, run.stored_at)
        at += run.hi - run.lo


MOST_ROWS = 100_000


class ReadBody(msgspec.Struct, forbid_unknown_fields=True):
    """Request body of a read: ranges of lanes, and the columns to return."""

    ranges: list[LaneRange]
    columns: list[str]


def check(body: ReadBody, known: tuple[str, ...]) -> None:
    rows = 0
    for lane, lo, hi in body.ranges:
        validation.count(lane, "lane", most=(1 << 23) - 2)
        validation.count(lo, "lo", least=0, most=(1 << 40) - 1)
        rows += validation.count(hi, "hi", least=lo, most=(1 << 40) - 1) - lo
    validation.count(rows, "the number of messages", least=0, most=MOST_ROWS)
    for name in body.columns:
        if name not in known:
            raise BadInput(f"unknown column {name!r:.60}; known: {', '.join(known)}")
    if len(set(body.columns)) < len(body.columns):
        raise BadInput("a column is named twice")
