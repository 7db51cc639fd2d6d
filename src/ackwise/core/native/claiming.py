"""Claims, and what they bring: rows for everybody, columns for our own client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Literal, TypeVar

import msgspec

from ackwise.core import ids, limits
from ackwise.core.answers import Claimed, Grant, Handed, Settled
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim
from ackwise.core.errors import BadInput, StoreError
from ackwise.core.messages import QUEUE_MODE, Extras, Message
from ackwise.core.native import instants, payloads
from ackwise.core.native.settling import Entry
from ackwise.core.policy import Exclusivity, Order, QueuePolicy

MAX_WAIT = 60.0
"""The longest a poll waits on the server; whoever wants to wait longer asks again."""
MAX_AHEAD = 1000

T = TypeVar("T")
_PLAIN = Extras()


class ClaimBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A claim; `settle` is done in the same turn, `ahead` claims so many batches without waiting.

    `columns` asks for the answer that our own client reads, and `poll` names the claim so that it can be stopped.
    `grants_only` leaves the messages out, for who reads them elsewhere.
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
    """Which polls are to come back now, with nothing."""

    polls: list[str]


class Run(msgspec.Struct, array_like=True):
    """Messages [lo, hi) of a lane. `ids` is the first one's when they count up from there, else all of them."""

    lane: int
    lo: int
    hi: int
    stored_at: int
    ids: str | list[str]


class Columns(msgspec.Struct, Generic[T], omit_defaults=True):
    """A claim's answer without anything said twice: instants in microseconds, extras by index, ids and transaction
    ids that nobody gave left out. `payloads` is written as one piece and read one by one."""

    group: str
    lease_id: str = ""
    deadline: int = 0
    empty: EmptyReason | None = None
    until: int | None = None
    grants: list[Grant] = []
    runs: list[Run] = []
    transaction_ids: list[str] = []
    extras: dict[int, Extras] = {}
    payloads: T | None = None
    verdicts: list[Settled] = []


class Ahead(msgspec.Struct, Generic[T]):
    """The answer to a claim of several batches."""

    verdicts: list[Settled]
    claims: list[Columns[T]]


Read = Columns[list[msgspec.Raw]]
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
        lease=None if body.lease_seconds is None else limits.lease_micros(body.lease_seconds),
        exclusivity=body.exclusivity,
        order=body.order,
        owner=body.owner,
        key=body.key,
        auto_ack=body.auto_ack,
        bulk=body.bulk,
        yields=body.yields,
        pushed_by=None if body.pushed_by is None else instants.parse(body.pushed_by, "pushed_by"),
        start=_start(body.start),
        create=body.create,
    )


def _start(text: str) -> Literal["all", "new"] | int:
    if text == "all" or text == "new":
        return "all" if text == "all" else "new"
    return instants.parse(text, "start")


def wait_of(body: ClaimBody) -> float:
    """How long the poll may wait here."""
    return min(limits.micros(body.wait_seconds, "wait_seconds") / limits.MICROS, MAX_WAIT)


def ahead_of(body: ClaimBody) -> int | None:
    if body.ahead is None:
        return None
    if body.wait_seconds:
        raise BadInput("a claim ahead never waits: leave out wait_seconds")
    return limits.count(body.ahead, "ahead", most=MAX_AHEAD)


def check_grants_only(body: ClaimBody) -> None:
    """It is one claim, made at once, whose messages stay where they are until somebody settles them."""
    for other in ("auto_ack", "settle", "ahead", "wait_seconds"):
        if getattr(body, other) not in (None, False, 0):
            raise BadInput(f"a claim of grants only goes without {other}")


def body(claim: Claim) -> ClaimBody:
    """What the client sends."""
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
        lease_seconds=None if claim.lease is None else claim.lease / limits.MICROS,
        exclusivity=claim.exclusivity,
        order=claim.order,
        owner=claim.owner,
        key=claim.key,
        auto_ack=claim.auto_ack,
        bulk=claim.bulk,
        yields=claim.yields,
        pushed_by=None if claim.pushed_by is None else instants.text(claim.pushed_by),
        start=claim.start if isinstance(claim.start, str) else instants.text(claim.start),
        create=claim.create,
        columns=True,
        detail=True,
    )


class _Source:
    """The messages of one run, as the client holds them."""

    __slots__ = ("_at", "_columns", "_first", "_lo", "_numbers")

    def __init__(self, columns: Read, run: Run, at: int) -> None:
        self._columns, self._lo, self._at = columns, run.lo, at
        self._first = _number(run.ids) if isinstance(run.ids, str) else 0
        self._numbers = None if isinstance(run.ids, str) else [_number(one) for one in run.ids]

    def id_int(self, seq: int) -> int:
        index = seq - self._lo
        return self._first + index if self._numbers is None else self._numbers[index]

    def txid(self, seq: int) -> str:
        given = self._columns.transaction_ids
        return given[self._at + seq - self._lo] if given else ""

    def payload(self, seq: int) -> bytes:
        index = self._at + seq - self._lo
        assert self._columns.payloads is not None
        return payloads.given(self._columns.payloads[index], self._columns.extras.get(index, _PLAIN).content_type)

    def extras(self, seq: int) -> Extras:
        return self._columns.extras.get(self._at + seq - self._lo, _PLAIN)


def _number(text: str) -> int:
    found = ids.uuid_int(text)
    if found is None:
        raise StoreError("the server's answer has a message id that is none")
    return found


def handed(columns: Read) -> Handed:
    """What the client makes of an answer."""
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
