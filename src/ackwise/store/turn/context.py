"""The state of one turn: its instant, its dice, what it loaded and what it will count."""

from __future__ import annotations

import hashlib
import random
import time
from typing import TYPE_CHECKING, Any

import msgspec

from ackwise.core import latency
from ackwise.core.ids import uuid7
from ackwise.core.limits import MICROS
from ackwise.core.spans import Cursor, Lease, Span
from ackwise.store.session import Dedupe, Known, Row, Session

if TYPE_CHECKING:
    from ackwise.store.turn.weight import Scale

Tally = dict[tuple[str, str, str, int], tuple[int, dict[int, int]]]
"""(queue, group, outcome, minute) to how many and how long they took."""


class Looking:
    """A session that finds messages by their transaction ids: a reader's, or a turn's."""

    def __init__(self, session: Session, known: Known, seed: bytes) -> None:
        self.session = session
        self.known = known
        self._seed = hashlib.blake2b(seed, digest_size=8)
        self.seed_number = int.from_bytes(seed[:8], "little")

    def hasher(self, part: int) -> Any:
        """A seeded hash that transaction ids of this partition are fed to."""
        hasher = self._seed.copy()
        hasher.update(part.to_bytes(8, "little"))
        return hasher


class Turn(Looking):
    """One transaction with one `now`."""

    def __init__(
        self,
        session: Session,
        dedupe: Dedupe,
        *,
        now: int,
        dice: random.Random,
        seed: bytes,
        instance: str,
        rounds: dict[str, int] | None = None,
    ) -> None:
        super().__init__(session, dedupe, seed)
        self.dedupe = dedupe
        self.now = now
        self.dice = dice
        self.instance = instance
        self.rounds = {} if rounds is None else rounds
        """Progress of duties that read queues page by page. The progress outlives the turn."""
        self.timer = time.perf_counter
        self.tally: Tally = {}
        self.ledger_written = False
        self.woken: dict[str, int] = {}
        self.announced: set[str] = set()
        self.written: list[dict[str, Any]] = []
        self.last_id = 0
        self.loaded: dict[int, Any] = {}
        self._saved_tally: Tally = {}
        self._saved_written = 0
        self._leases: dict[int, Lease] = {}
        self._owned: set[int] = set()
        self._shut: dict[int, bool] = {}
        self.held_ids: dict[tuple[int, int], dict[str, tuple[int, int]]] = {}
        """What groups were handed in partitions, by transaction id, where that had to be looked for."""
        self.scales: dict[int, Scale] = {}
        """Bytes that claims share, by the number they have in common."""
        self.prefetched = 0
        """Bytes that the turn read for claims with auto-ack."""
        self.claims = 0
        """How many claims there are in this turn: so many lanes are looked for at once."""
        self.ready: dict[tuple[object, ...], dict[int, Row]] = {}
        """Ready lanes, by where was looked, that a claim of this turn found, owns and did not need."""
        self.overdue = False
        """Whether there are more leases that ran out than a turn with claims deals with."""
        self.own_expired: set[int] = set()
        """Groups whose leases that ran out were dealt with, for a claim of theirs."""
        self._lease_no = 0
        self.graph_seconds = 0.0
        """How long statements of the graph ran in this turn."""
        self.graph_expired = False
        """Whether deliveries of the graph that ran out were dealt with in this turn."""

    def roll(self) -> float:
        return self.dice.random()

    def new_ids(self, count: int) -> int:
        """The first of `count` message ids in a row, above every id of this turn."""
        first = max(uuid7(self.now // 1000, self.dice.getrandbits(73)), self.last_id + 1)
        self.last_id = first + count - 1
        return first

    def new_uuid(self) -> int:
        return self.new_ids(1)

    def count(self, queue: str, group: str, outcome: str, n: int, took: int | None = None) -> None:
        """Note `n` settlements for the ledger."""
        if n:
            key = (queue, group, outcome, self.now // (60 * MICROS))
            total, sketch = self.tally.get(key, (0, {}))
            if took is not None:
                number = latency.bucket(took)
                sketch[number] = sketch.get(number, 0) + n
            self.tally[key] = (total + n, sketch)

    def wake(self, queue: str, n: int) -> None:
        """Messages of this queue may have become claimable."""
        self.woken[queue] = self.woken.get(queue, 0) + n

    def announce(self, queue: str) -> None:
        """Something of this queue was not claimable and now is: other brokers want to know."""
        self.announced.add(queue)

    def forget(self) -> None:
        """Drop what was loaded."""
        self.ready.clear()
        self._leases.clear()
        self._owned.clear()
        self.loaded.clear()

    def savepoint(self, seconds: float | None = None) -> None:
        """From here on, `undo` takes everything back: rows, dedupe keys and counts."""
        self.session.savepoint(seconds)
        self.dedupe.mark()
        self._saved_written = len(self.written)
        self._saved_tally = {key: (n, dict(sketch)) for key, (n, sketch) in self.tally.items()}

    def keep(self) -> None:
        self.session.keep()

    def undo(self) -> None:
        self.session.undo()
        self.dedupe.undo()
        self.tally = self._saved_tally
        del self.written[self._saved_written :]
        self.forget()

    # leases

    def next_lease_no(self) -> int:
        """A number above every other. Drawn when the partitions are locked, so that it fences what is granted."""
        row = self.session.row("lease_next", {"after": self._lease_no})
        assert row is not None
        self._lease_no = int(row[0])
        return self._lease_no

    def lease(self, no: int) -> Lease | None:
        found = self._leases.get(no)
        if found is None and (row := self.session.row("lease_by_no", {"no": no})):
            found = self._leases[no] = lease_from(row)
        return found

    def own_lease(self, lease: Lease) -> None:
        """Of a bulk lease pieces are settled without owning it; who changes it must, and sees it as it is now."""
        if not lease.bulk or lease.no in self._owned:
            return
        self._owned.add(lease.no)
        if (row := self.session.lock_lease(lease.no)) is not None:
            now = lease_from(row)
            lease.deadline, lease.lost = now.deadline, now.lost
            lease.ended_at, lease.end_kind = now.ended_at, now.end_kind
            lease.returned, lease.dropped = now.returned, now.dropped

    def know_leases(self, rows: list[Row]) -> None:
        """Leases that were read before the turn began, under the locks that it needs."""
        self._leases.update((row[0], lease_from(row)) for row in rows)

    def lease_by_key(self, grp: int, key: str) -> Lease | None:
        row = self.session.row("lease_by_key", {"grp": grp, "key": key})
        return (self._leases.get(row[0]) or lease_from(row)) if row else None

    def lease_of_claim(self, grp: int, key: str) -> Lease | None:
        """The same, to be changed."""
        row = self.session.row("lease_of_claim", {"grp": grp, "key": key})
        return self._leases.setdefault(row[0], lease_from(row)) if row else None

    def nobody_has_all(self, grp: int) -> bool:
        """Whether no lease excludes everybody from this group's queue; asked once per turn, under the group's lock."""
        if grp not in self._shut:
            self._shut[grp] = self.session.row("lease_any_whole_queue", {"grp": grp}) is not None
        return not self._shut[grp]

    def add_lease(self, lease: Lease) -> None:
        self._shut[lease.grp] = self._shut.get(lease.grp, True) or lease.exclusivity == "queue"
        fields = msgspec.structs.asdict(lease)
        self.session.run("lease_insert", {**fields, "granted": ranges_text(lease.granted)})
        self._leases[lease.no] = lease

    def end_lease(self, lease: Lease, kind: str) -> None:
        lease.ended_at, lease.end_kind = self.now, kind
        self.session.run("lease_end", {**_became(lease), "ended_at": self.now, "end_kind": kind})

    def save_lease(self, lease: Lease) -> None:
        """It lives on, with less than it had."""
        self.session.run("lease_lives_on", _became(lease))

    # cursors and spans

    def cursor(self, lane: int, grp: int) -> Cursor | None:
        row = self.session.row("cursor_get", {"lane": lane, "grp": grp})
        return Cursor(*row) if row else None

    def save_cursor(self, cursor: Cursor) -> None:
        self.session.run("cursor_update", msgspec.structs.asdict(cursor))

    def spans(self, name: str, **params: int) -> list[Span]:
        return [Span(*row) for row in self.session.rows(name, params)]

    def replace_span(self, old: Span, new: list[Span]) -> None:
        """Put `new` where `old` was; spans are keyed by their end."""
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


def added(one: Tally, other: Tally) -> Tally:
    """Both counts together."""
    total = dict(one)
    for key, (count, sketch) in other.items():
        before, old = total.get(key, (0, {}))
        total[key] = (before + count, latency.merged(old, sketch))
    return total


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


def _became(lease: Lease) -> dict[str, Any]:
    """What became of its messages otherwise than by an ack or a dead letter."""
    lost, dropped = ranges_text(lease.lost), ranges_text(lease.dropped)
    return {"no": lease.no, "lost": lost, "returned": lease.returned, "dropped": dropped}


def span_params(span: Span) -> dict[str, Any]:
    fields = msgspec.structs.asdict(span)
    del fields["owner"]
    return fields


def ranges_text(ranges: list[tuple[int, int, int]]) -> str:
    return msgspec.json.encode(ranges).decode()


def ranges_from(text: str | None) -> list[tuple[int, int, int]]:
    return msgspec.json.decode(text, type=list[tuple[int, int, int]]) if text else []
