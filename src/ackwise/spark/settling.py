"""Settlement in bulk: neighbours that are acked go as ranges, and a record's outputs in one step with its settlement.

Every settlement names a delivery under a lease, so a task that is run again, or comes too late, changes nothing: its
rows are counted as `already` or `stale`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ackwise.client.transport import Transport
from ackwise.core import ids
from ackwise.core.answers import Receipts, Settled, TransactionDone
from ackwise.core.commands import ByDelivery, ByRange, Push, Settle, Settlement, Transaction
from ackwise.core.errors import BadInput, LeaseLost, RolledBack
from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.core.queries import HeldRow, ListHeld
from ackwise.core.settlement import Outcome, Verdict

MOST_ROWS = 5000
"""Settlements per commit."""
MOST_BUNDLES = 1000
"""Records per commit that carry outputs."""
MOST_BYTES = 4 * 1024 * 1024
OUTPUTS_BEFORE = "outputs_before"
"""Outputs of records that were settled already: they were pushed then, if those were acked."""


class Row(NamedTuple):
    """What becomes of one delivery, and what comes out of it. `delay` is in microseconds."""

    delivery_id: str
    outcome: Outcome = Outcome.ACK
    delay: int | None = None
    error: str | None = None
    error_type: str | None = None
    undecodable: bool = False
    outputs: Sequence[NewMessage] = ()


class Stretch(NamedTuple):
    """Deliveries [lo, hi) of a lane under a lease."""

    prefix: str
    lo: int
    hi: int

    @classmethod
    def between(cls, first: str, last: str, size: int) -> Stretch | None:
        """What `size` deliveries in order are, if they are all there are from the first to the last."""
        one, other = ids.parse_delivery_id(first), ids.parse_delivery_id(last)
        if one is None or other is None or other.seq - one.seq != size - 1:
            return None
        prefix, _, _ = first.rpartition(".")
        return cls(f"{prefix}.", one.seq, other.seq + 1) if last.startswith(f"{prefix}.") else None

    def name(self, seq: int) -> str:
        return f"{self.prefix}{ids.base36(seq)}"

    @property
    def rows(self) -> list[Row]:
        return [Row(self.name(seq)) for seq in range(self.lo, self.hi)]

    def without(self, seqs: Iterable[int]) -> list[Stretch]:
        """What is left between these, which are in order."""
        found, lo = [], self.lo
        for seq in (*seqs, self.hi):
            if seq > lo:
                found.append(Stretch(self.prefix, lo, seq))
            lo = seq + 1
        return found

    def selector(self, *, whole: bool) -> ByRange:
        lease_id, _, lane = self.prefix[:-1].partition(".")
        return ByRange(lease_id, int(lane, 36), self.lo, self.hi, whole)


class Neighbours(NamedTuple):
    """Deliveries of one lane, and all that comes out of them."""

    acked: list[Stretch]
    failed: list[Row]
    outputs: PlainBatch | None

    @property
    def weight(self) -> int:
        return 0 if self.outputs is None else sum(map(len, self.outputs.payloads))


class Settler:
    """Settles rows; `produce` is the queue that their outputs are pushed to."""

    def __init__(self, transport: Transport, produce: str | None = None) -> None:
        self._transport, self._produce = transport, produce

    def settle(self, rows: Sequence[Row]) -> Counter[str]:
        """How many rows got which verdict, and under `outputs` how many messages were pushed."""
        bundled = any(row.outputs for row in rows)
        work = self._bundles if bundled else self._single
        return sum(map(work, _chunks(rows, MOST_BUNDLES if bundled else MOST_ROWS)), Counter())

    def settle_neighbours(self, parts: Sequence[Neighbours], rows: Callable[[], list[Row]]) -> Counter[str]:
        """The same in one commit for rows that are put together already; `rows` are asked for when it is refused."""
        acked = [one for part in parts for one in part.acked]
        failed = [row for part in parts for row in part.failed]
        outputs = _joined([part.outputs for part in parts if part.outputs is not None])
        if not outputs:
            return self._plain(acked, failed)
        try:
            return self._commit(acked, failed, outputs)
        except (RolledBack, LeaseLost, BadInput):
            return self.settle(rows())

    def _send(self, entries: list[Settlement]) -> list[Settled]:
        answers: list[Settled] = self._transport.send(Settle(entries=entries))
        return answers

    def _single(self, rows: list[Row]) -> Counter[str]:
        return self._plain(*gathered(rows))

    def _plain(self, stretches: list[Stretch], single: list[Row]) -> Counter[str]:
        """Each for itself. What fails goes first: a delivery that is named twice is not acked by accident."""
        entries = [_settlement(row) for row in single]
        entries += [Settlement(selector=one.selector(whole=False), outcome=Outcome.ACK) for one in stretches]
        answers = self._send(entries)
        counts = Counter(answer.verdict.value for answer in answers[: len(single)])
        for one, answer in zip(stretches, answers[len(single) :], strict=True):
            counts += self._told(one, answer)
        return counts

    def _told(self, stretch: Stretch, answer: Settled) -> Counter[str]:
        """What became of the rows of a range: when it was not settled whole, each is asked about."""
        size = stretch.hi - stretch.lo
        acked = answer.count if answer.verdict is Verdict.ACKED else 0
        if acked == size:
            return Counter({Verdict.ACKED.value: size})
        again = Counter(one.verdict.value for one in self._send([_settlement(row) for row in stretch.rows]))
        again[Verdict.ALREADY.value] -= acked
        again[Verdict.ACKED.value] += acked
        return +again

    def _bundles(self, rows: list[Row]) -> Counter[str]:
        """All of them in one commit. If one is refused the others are tried without it: nothing is pushed twice."""
        outputs = [message for row in rows for message in row.outputs]
        if not outputs:
            return self._single(rows)
        try:
            return self._commit(*gathered(rows), _batches(outputs))
        except (RolledBack, LeaseLost):
            return self._without_refused(rows)
        except BadInput as problem:
            return self._without_bad(rows, problem)

    def _commit(
        self, stretches: list[Stretch], single: list[Row], outputs: Iterable[PlainBatch | list[NewMessage]]
    ) -> Counter[str]:
        settlements = [_settlement(row) for row in single]
        settlements += [Settlement(selector=one.selector(whole=True), outcome=Outcome.ACK) for one in stretches]
        assert self._produce is not None
        command = Transaction(
            settlements=settlements,
            pushes=[Push(queue=self._produce, messages=batch) for batch in outputs],
            on_duplicate="ok",
            on_already="fail",
        )
        done: TransactionDone = self._transport.send(command)
        counts: Counter[str] = Counter()
        for answer in done.settled:
            counts[answer.verdict.value] += answer.count
        counts["outputs"] += sum(_pushed(receipts) for receipts in done.pushed)
        return counts

    def _without_refused(self, rows: list[Row]) -> Counter[str]:
        held = self._held({row.delivery_id.partition(".")[0] for row in rows})
        rest = [row for row in rows if _holds(held, row.delivery_id)]
        gone = [row for row in rows if not _holds(held, row.delivery_id)]
        counts: Counter[str] = Counter()
        if gone:
            # A release of what is not held settles nothing: it only asks why they were refused.
            asked = [Settlement(selector=ByDelivery(row.delivery_id), outcome=Outcome.RELEASE) for row in gone]
            for row, answer in zip(gone, self._send(asked), strict=True):
                verdict = Verdict.STALE if answer.verdict is Verdict.RELEASED else answer.verdict
                counts[verdict.value] += 1
                if answer.verdict is Verdict.ALREADY:
                    counts[OUTPUTS_BEFORE] += len(row.outputs)
        if not rest:
            return counts
        if gone:
            return counts + self._bundles(rest)
        # All are held and yet refused: a delivery comes twice. One by one, the second is already settled.
        if len(rows) == 1:
            return counts + Counter({Verdict.STALE.value: 1})
        return sum((self._bundles([row]) for row in rows), counts)

    def _held(self, lease_ids: set[str]) -> dict[tuple[str, int], list[HeldRow]]:
        found: dict[tuple[str, int], list[HeldRow]] = {}
        for lease_id in lease_ids:
            for row in self._transport.ask(ListHeld(lease_id=lease_id)):
                found.setdefault((lease_id, row.lane), []).append(row)
        return found

    def _without_bad(self, rows: list[Row], problem: BadInput) -> Counter[str]:
        """An output that cannot be pushed is its own record's fault, which can never succeed."""
        if len(rows) > 1:
            middle = len(rows) // 2
            return self._bundles(rows[:middle]) + self._bundles(rows[middle:])
        return self._single([unpushable(rows[0].delivery_id, problem)])


def unpushable(delivery_id: str, problem: BadInput) -> Row:
    """A record that can never succeed: what comes out of it is no message."""
    text = f"the output cannot be pushed: {problem.message}"
    return Row(delivery_id, Outcome.REJECT, None, text, type(problem).__name__)


def _batches(outputs: list[NewMessage]) -> Iterator[PlainBatch | list[NewMessage]]:
    """The outputs, each partition's for itself: those without options are columns then, which are pushed at once."""
    partitions: dict[str, list[NewMessage]] = {}
    for message in outputs:
        partitions.setdefault(message.partition, []).append(message)
    for messages in partitions.values():
        yield PlainBatch.of(messages) or messages


def _joined(batches: list[PlainBatch]) -> list[PlainBatch]:
    """One for each partition."""
    partitions: dict[str, list[PlainBatch]] = {}
    for batch in batches:
        partitions.setdefault(batch.partition, []).append(batch)
    return [
        PlainBatch(
            [payload for batch in found for payload in batch.payloads],
            [name for batch in found for name in batch.transaction_ids or ()],
            partition,
        )
        for partition, found in partitions.items()
    ]


def _pushed(receipts: Receipts) -> int:
    """How many are new: one whose record was worked on before, and sought back since, is there already."""
    return len(receipts) if receipts.run is not None else sum(one.status != "duplicate" for one in receipts)


def _holds(held: dict[tuple[str, int], list[HeldRow]], delivery_id: str) -> bool:
    key = ids.parse_delivery_id(delivery_id)
    if key is None:
        return False
    spans = held.get((delivery_id.partition(".")[0], key.lane), ())
    return any(one.lo <= key.seq < one.hi for one in spans)


def _chunks(rows: Sequence[Row], most: int) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    size = 0
    for row in rows:
        weight = sum(len(message.payload) for message in row.outputs)
        if chunk and (len(chunk) == most or size + weight > MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += weight
    if chunk:
        yield chunk


def _settlement(row: Row) -> Settlement:
    return Settlement(
        selector=ByDelivery(row.delivery_id),
        outcome=row.outcome,
        delay=row.delay,
        error=row.error,
        error_type=row.error_type,
        undecodable=row.undecodable,
    )


def gathered(rows: Sequence[Row]) -> tuple[list[Stretch], list[Row]]:
    """Rows that are acked as ranges, and the rest one by one."""
    seqs: dict[str, list[int]] = {}
    single: list[Row] = []
    for row in rows:
        head, dot, tail = row.delivery_id.rpartition(".")
        known = seqs.get(head + dot)
        if row.outcome is not Outcome.ACK:
            single.append(row)
        elif known is not None and tail.isascii() and tail.isalnum():
            # What follows a prefix that was looked at can only be a number.
            known.append(int(tail, 36))
        elif ids.parse_delivery_id(row.delivery_id) is not None:
            seqs.setdefault(head + dot, []).append(int(tail, 36))
        else:
            single.append(row)
    return [one for prefix, found in seqs.items() for one in _stretches(prefix, found)], single


def _stretches(prefix: str, seqs: list[int]) -> Iterator[Stretch]:
    seqs.sort()
    lo = hi = seqs[0]
    for seq in seqs:
        if seq != hi:
            yield Stretch(prefix, lo, hi)
            lo = seq
        hi = seq + 1
    yield Stretch(prefix, lo, hi)
