"""State of one turn: instant, loaded leases, cursors, counts."""

from __future__ import annotations

import hashlib
import random
import time
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ackwise.core.events import Event, MessagesPromoted, MessagesPruned
from ackwise.core.ids import GroupId, LaneId, LeaseNo, Micros, Seq, looks_minted, uuid7, uuid_int
from ackwise.core.lane_range import LaneRange
from ackwise.core.spans import Cursor, Lease, Span
from ackwise.core.validation import MICROS
from ackwise.engine.ports import Dedupe, Known, Row, Session
from ackwise.engine.writer_memory import WriterMemory

if TYPE_CHECKING:
    from ackwise.engine.extensions import Extensions
    from ackwise.engine.grant import ByteBudget

T = TypeVar("T")

Tally = dict[tuple[str, str, str, int], tuple[int, dict[int, int]]]
"""Counts, and how many messages took so many microseconds, by (queue, group, outcome, minute)."""


_SPREAD = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_SIGN = 1 << 63


@lru_cache(maxsize=16)
def _seeded(seed: bytes) -> tuple[Any, int]:
    """The hash and the number of a store's seed. Every turn needs them, and they never change."""
    return hashlib.blake2b(seed, digest_size=8), int.from_bytes(seed[:8], "little")


class MessageFinder:
    """A session that can find messages by transaction id: a reader or a turn."""

    def __init__(self, session: Session, known: Known, seed: bytes) -> None:
        self.session = session
        self.known = known
        self._seed, self._seed_number = _seeded(seed)

    def hashes(self, part: int, first: int, txids: list[str] | int) -> list[int]:
        """64-bit seeded hashes of transaction ids of messages whose ids count up from `first`.

        `txids` is a number if no message has its own transaction id. Then the message id stands for it: it is random
        already, so its hash is cheap. Consecutive message ids differ by `_SPREAD`.
        """
        seed = self._seed_number
        if isinstance(txids, int):
            start = first * _SPREAD + (first >> 64) + part * _SPREAD
            return [(((start + _SPREAD * i ^ seed) + _SIGN) & _WORD) - _SIGN for i in range(txids)]
        if all(txids) and not any(map(looks_minted, txids)):
            return self._text_hashes(part, txids)
        hashed: list[int] = []
        for number, txid in enumerate(txids, first):
            minted = number if not txid else uuid_int(txid) if looks_minted(txid) else None
            hashed += self._text_hashes(part, [txid]) if minted is None else self.hashes(part, minted, 1)
        return hashed

    def _text_hashes(self, part: int, txids: list[str]) -> list[int]:
        seeded = self._seed.copy()
        seeded.update(part.to_bytes(8, "little"))
        digests = []
        for txid in txids:
            hasher = seeded.copy()
            hasher.update(txid.encode())
            digests.append(hasher.digest())
        return array("q", b"".join(digests)).tolist()


class Turn(MessageFinder):
    """One database transaction at one instant: its session, loaded rows and counts."""

    def __init__(
        self,
        session: Session,
        dedupe: Dedupe,
        *,
        now: int,
        shift: int = 0,
        dice: random.Random,
        seed: bytes,
        instance: str,
        rounds: dict[str, int],
        extensions: Extensions,
        memory: WriterMemory | None = None,
    ) -> None:
        super().__init__(session, dedupe, seed)
        self.dedupe = dedupe
        self.now = Micros(now)
        """The anchored clock: deadlines and delays."""
        self.shift = shift
        """Microseconds that the anchored clock is ahead of the wall clock."""
        self.wall = Micros(now - shift)
        """The wall clock: instants that people name and read."""
        self.dice = dice
        self.instance = instance
        self.rounds = rounds
        """Progress of duties that read queues page by page. It outlives the turn."""
        self.memory = memory or WriterMemory()
        self.extensions = extensions
        self._states: dict[type, Any] = {}
        self.timer = time.perf_counter
        self.tally: Tally = {}
        """Counts for the ledger."""
        self.ledger_written = False
        self.wrote_nothing = False
        """Whether the database knows that the turn changed no row."""
        self.woken: dict[str, int] = {}
        """Claimable messages by queue. The broker wakes as many parked claims."""
        self.offered: set[str] = set()
        """Queues with messages that no claim could take before. Listeners follow them. An ack offers nothing."""
        self.announced: set[str] = set()
        """Queues whose claims other brokers must wake."""
        self.buried: list[tuple[str, list[dict[str, Any]]]] = []
        """New dead letters by queue."""
        self.expired_leases: dict[tuple[str, str], int] = {}
        """Leases that ended by their deadline, by queue and group."""
        self.noted: dict[tuple[type[MessagesPromoted | MessagesPruned], str], int] = {}
        """Counts by event and queue that the ledger does not contain."""
        self.reported: list[Event] = []
        """Other events of the turn."""
        self.written: list[dict[str, Any]] = []
        self.last_id = 0
        self.loaded: dict[int, Any] = {}
        """`GroupContext` by group."""
        self._saved_tally: Tally = {}
        self._saved_written = 0
        self._saved_buried = 0
        self._saved_expired: dict[tuple[str, str], int] = {}
        self._leases: dict[int, Lease] = {}
        self._owned: set[int] = set()
        self._has_queue_lease: dict[int, bool] = {}
        self.held_ids: dict[tuple[int, GroupId], dict[str, tuple[LaneId, Seq]]] = {}
        """(lane, seq) by transaction id of the messages that a group holds in a partition, by (partition, group)."""
        self.byte_budgets: dict[int, ByteBudget] = {}
        """Byte budgets that claims share, by their `together` number."""
        self.prefetched = 0
        """Bytes that the turn read for claims with auto-ack."""
        self.claims = 0
        """Number of claims in this turn. The first search reads as many lanes."""
        self.ready: dict[tuple[object, ...], dict[int, Row]] = {}
        """Ready lanes by search that an earlier claim of this turn locked and did not need."""
        self.overdue = False
        """Whether more leases are past their deadline than a turn with claims expires."""
        self.expired_groups: set[int] = set()
        """Groups whose leases this turn has expired before a claim."""
        self._lease_no = LeaseNo(0)

    def state(self, kind: type[T]) -> T:
        """State that an extension keeps during this turn: one object of each class, created on first use."""
        if kind not in self._states:
            self._states[kind] = kind()
        state: T = self._states[kind]
        return state

    def roll(self) -> float:
        return self.dice.random()

    def new_ids(self, count: int) -> int:
        """The first of `count` consecutive message ids, all above the earlier ids of this turn."""
        first = max(uuid7(self.wall // 1000, self.dice.getrandbits(73)), self.last_id + 1)
        self.last_id = first + count - 1
        return first

    def new_uuid(self) -> int:
        return self.new_ids(1)

    def count(self, queue: str, group: str, outcome: str, n: int, took: int | None = None) -> None:
        """Note `n` settlements for the ledger."""
        if n:
            key = (queue, group, outcome, self.wall // (60 * MICROS))
            total, times = self.tally.get(key, (0, {}))
            if took is not None:
                times[took] = times.get(took, 0) + n
            self.tally[key] = (total + n, times)

    def count_expired_lease(self, queue: str, group: str) -> None:
        key = (queue, group)
        self.expired_leases[key] = self.expired_leases.get(key, 0) + 1

    def note(self, event: type[MessagesPromoted | MessagesPruned], queue: str, n: int) -> None:
        """Add to the count of an event. Sweeps use it. A sweep is never undone."""
        self.noted[event, queue] = self.noted.get((event, queue), 0) + n

    def wake(self, queue: str, n: int, *, offers: bool = True) -> None:
        """Note that `n` messages of a queue may have become claimable.

        `offers=False` says that a claim could take them before.
        """
        self.woken[queue] = self.woken.get(queue, 0) + n
        if offers:
            self.offered.add(queue)

    def announce(self, queue: str) -> None:
        """Notify other brokers that messages of a queue became claimable."""
        self.announced.add(queue)

    def forget(self) -> None:
        """Drop all loaded rows."""
        self.ready.clear()
        self._leases.clear()
        self._owned.clear()
        self.loaded.clear()

    def savepoint(self, seconds: float | None = None) -> None:
        """Mark a point to which `undo` returns rows, dedupe keys and counts."""
        self.session.savepoint(seconds)
        self.dedupe.mark()
        self._saved_written, self._saved_buried = len(self.written), len(self.buried)
        self._saved_expired = dict(self.expired_leases)
        self._saved_tally = {key: (n, dict(times)) for key, (n, times) in self.tally.items()}

    def keep(self) -> None:
        self.session.keep()

    def undo(self) -> None:
        self.session.undo()
        self.dedupe.undo()
        self.tally, self.expired_leases = self._saved_tally, self._saved_expired
        del self.written[self._saved_written :]
        del self.buried[self._saved_buried :]
        self.memory.forget()
        self.forget()

    # leases

    def next_lease_no(self) -> LeaseNo:
        """A lease number above all others.

        Draw it after the partitions are locked, so that it fences the granted messages.
        """
        last = self.memory.last_lease
        if last is None:
            row = self.session.row("lease_next", {"after": self._lease_no})
            assert row is not None
            self._lease_no = LeaseNo(int(row[0]))
        else:
            self._lease_no = LeaseNo(last + 1)
        if self.memory.alone:
            self.memory.last_lease = self._lease_no
        return self._lease_no

    def lease(self, no: LeaseNo) -> Lease | None:
        lease = self._leases.get(no)
        if lease is None and (row := self.session.row("lease_by_no", {"no": no})):
            lease = self._leases[no] = lease_from(row)
        return lease

    def own_lease(self, lease: Lease) -> None:
        """Lock a bulk lease and refresh it, before the turn changes the lease itself.

        Turns settle messages of a bulk lease in parallel, without this lock. Other leases need no lock.
        """
        if not lease.bulk or lease.no in self._owned:
            return
        self._owned.add(lease.no)
        if (row := self.session.lock_lease(lease.no)) is not None:
            now = lease_from(row)
            lease.deadline, lease.lost = now.deadline, now.lost
            lease.ended_at, lease.end_kind = now.ended_at, now.end_kind
            lease.returned, lease.dropped = now.returned, now.dropped

    def preload_leases(self, rows: list[Row]) -> None:
        """Add leases that were read before the turn began, under the locks that the turn needs."""
        self._leases.update((row[0], lease_from(row)) for row in rows)

    def lease_by_key(self, grp: GroupId, key: str) -> Lease | None:
        row = self.session.row("lease_by_key", {"grp": grp, "key": key})
        return (self._leases.get(row[0]) or lease_from(row)) if row else None

    def lease_of_claim(self, grp: GroupId, key: str) -> Lease | None:
        """The newest lease of the claim with this key. The turn keeps it, so that later commands see its changes."""
        row = self.session.row("lease_of_claim", {"grp": grp, "key": key})
        return self._leases.setdefault(row[0], lease_from(row)) if row else None

    def has_no_queue_lease(self, grp: GroupId) -> bool:
        """Whether no lease of the group holds the whole queue. Read once per turn, under the group's lock."""
        if grp in self.memory.without_queue_lease:
            return True
        if grp not in self._has_queue_lease:
            self._has_queue_lease[grp] = self.session.row("lease_any_whole_queue", {"grp": grp}) is not None
        if not self._has_queue_lease[grp]:
            self.memory.learn_no_queue_lease(grp)
        return not self._has_queue_lease[grp]

    def add_lease(self, lease: Lease) -> None:
        self._has_queue_lease[lease.grp] = self._has_queue_lease.get(lease.grp, True) or lease.exclusivity == "queue"
        if lease.deadline < self.memory.expires_from or lease.exclusivity == "queue":
            self.memory.note_lease(lease.grp, lease.deadline, whole_queue=lease.exclusivity == "queue")
        fields = msgspec.structs.asdict(lease)
        self.session.run("lease_insert", {**fields, "granted": ranges_text(lease.granted)})
        self._leases[lease.no] = lease

    def end_lease(self, lease: Lease, kind: str) -> None:
        lease.ended_at, lease.end_kind = self.now, kind
        self.session.run("lease_end", {**_lease_changes(lease), "ended_at": self.now, "end_kind": kind})

    def save_lease(self, lease: Lease) -> None:
        """Write the changed lease, which stays alive."""
        self.session.run("lease_lives_on", _lease_changes(lease))

    # cursors and spans

    def cursor(self, lane: LaneId, grp: GroupId) -> Cursor | None:
        row = self.session.row("cursor_get", {"lane": lane, "grp": grp})
        return Cursor(*row) if row else None

    def save_cursor(self, cursor: Cursor) -> None:
        self.session.run("cursor_update", msgspec.structs.asdict(cursor))

    def spans(self, name: str, **params: int) -> list[Span]:
        return [Span(*row) for row in self.session.rows(name, params)]

    def replace_span(self, old: Span, new: list[Span]) -> None:
        """Replace a span by its remaining parts. Spans are keyed by their end."""
        kept = False
        for span in new:
            if span.hi == old.hi:
                kept = True
                self.session.run("span_update", span_params(span))
        if not kept:
            self.session.run("span_delete", {"lane": old.lane, "grp": old.grp, "hi": old.hi})
        self.session.many("span_insert", [span_params(span) for span in new if span.hi != old.hi])

    def add_span(self, span: Span) -> None:
        self.session.run("span_insert", span_params(span))


def lease_from(row: Row) -> Lease:
    (
        no,
        tag,
        queue,
        grp,
        owner,
        instance,
        exclusivity,
        bulk,
        deadline,
        made_at,
        granted,
        key,
        mark,
        ended,
        kind,
        lost,
        yields,
        returned,
        dropped,
    ) = row
    return Lease(
        no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at,
        ranges_from(granted), key, mark, ended, kind, ranges_from(lost), yields, returned, ranges_from(dropped),
    )  # fmt: skip


def _lease_changes(lease: Lease) -> dict[str, Any]:
    """Columns that change while a lease lives: lost, returned and dropped messages."""
    lost, dropped = ranges_text(lease.lost), ranges_text(lease.dropped)
    return {"no": lease.no, "lost": lost, "returned": lease.returned, "dropped": dropped}


def span_params(span: Span) -> dict[str, Any]:
    fields = msgspec.structs.asdict(span)
    del fields["owner"]
    return fields


_decode_ranges = msgspec.json.Decoder(list[LaneRange]).decode


def ranges_text(ranges: list[LaneRange]) -> str:
    """Ranges as a lease row stores them."""
    return msgspec.json.encode(ranges).decode()


def ranges_from(text: str | None) -> list[LaneRange]:
    """Ranges of a lease row."""
    return _decode_ranges(text) if text else []
