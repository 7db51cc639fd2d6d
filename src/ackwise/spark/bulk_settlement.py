"""Settles many rows per commit, as ranges, together with their outputs.

Each settlement names a delivery under a lease. A repeated or late task therefore changes nothing, and its rows count as
`already` or `stale`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ackwise.client.transport import Transport
from ackwise.core import ids
from ackwise.core.answers import Receipts, Settled
from ackwise.core.commands import ByDelivery, ByRange, Push, Settle, Settlement, Transaction
from ackwise.core.errors import BadInput, LeaseLost, RolledBack
from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.core.policy import NEW_QUEUE_POLICY
from ackwise.core.queries import ListHeld
from ackwise.core.rows import HeldRow
from ackwise.core.settlement import Outcome, Verdict

MOST_ROWS = 5000
"""Settlements per commit."""
MOST_BUNDLES = 1000
"""Records per commit that carry outputs."""
MOST_BYTES = 4 * 1024 * 1024
OUTPUTS_BEFORE = "outputs_before"
"""Count of outputs of records that were settled before. They were pushed then, if the record was acked."""


class RowSettlement(NamedTuple):
    """Outcome and outputs of one delivery. `delay` is in microseconds."""

    delivery_id: str
    outcome: Outcome = Outcome.ACK
    delay: int | None = None
    error: str | None = None
    error_type: str | None = None
    undecodable: bool = False
    outputs: Sequence[NewMessage] = ()


class DeliveryRange(NamedTuple):
    """Deliveries [lo, hi) of a lane under a lease."""

    prefix: str
    lo: int
    hi: int

    @classmethod
    def between(cls, first: str, last: str, size: int) -> DeliveryRange | None:
        """Range of `size` ascending deliveries from `first` to `last`. None if the range has gaps or two lanes."""
        lowest, highest = ids.parse_delivery_id(first), ids.parse_delivery_id(last)
        if lowest is None or highest is None or highest.seq - lowest.seq != size - 1:
            return None
        prefix, _, _ = first.rpartition(".")
        return cls(f"{prefix}.", lowest.seq, highest.seq + 1) if last.startswith(f"{prefix}.") else None

    def name(self, seq: int) -> str:
        return f"{self.prefix}{ids.base36(seq)}"

    @property
    def rows(self) -> list[RowSettlement]:
        return [RowSettlement(self.name(seq)) for seq in range(self.lo, self.hi)]

    def without(self, seqs: Iterable[int]) -> list[DeliveryRange]:
        """Ranges that remain without these ascending seqs."""
        remaining, lo = [], self.lo
        for seq in (*seqs, self.hi):
            if seq > lo:
                remaining.append(DeliveryRange(self.prefix, lo, seq))
            lo = seq + 1
        return remaining

    def selector(self, *, whole: bool) -> ByRange:
        lease_id, _, lane = self.prefix[:-1].partition(".")
        return ByRange(lease_id, int(lane, 36), self.lo, self.hi, whole)


class ChunkSettlement(NamedTuple):
    """Settlement of a chunk of one lane: acked ranges, failed rows and outputs."""

    acked: list[DeliveryRange]
    failed: list[RowSettlement]
    outputs: PlainBatch | None

    @property
    def weight(self) -> int:
        return 0 if self.outputs is None else sum(map(len, self.outputs.payloads))


class Settler:
    """Settles rows. `produce` is the queue that their outputs are pushed to."""

    def __init__(self, transport: Transport, produce: str | None = None) -> None:
        self._transport, self._produce = transport, produce

    def settle(self, rows: Sequence[RowSettlement]) -> Counter[str]:
        """Settle rows. Returns the number of rows by verdict, and of pushed messages as `outputs`."""
        bundled = any(row.outputs for row in rows)
        work = self._bundles if bundled else self._single
        return sum(map(work, _chunks(rows, MOST_BUNDLES if bundled else MOST_ROWS)), Counter())

    def settle_chunks(self, parts: Sequence[ChunkSettlement], rows: Callable[[], list[RowSettlement]]) -> Counter[str]:
        """Settle chunks in one commit. If the store rejects the commit, settle `rows()` instead."""
        acked = [acked_range for part in parts for acked_range in part.acked]
        failed = [row for part in parts for row in part.failed]
        outputs = _joined([part.outputs for part in parts if part.outputs is not None])
        if not outputs:
            return self._plain(acked, failed)
        try:
            return self._commit(acked, failed, outputs)
        except (RolledBack, LeaseLost, BadInput):
            return self.settle(rows())

    def _send(self, entries: list[Settlement]) -> list[Settled]:
        answers = self._transport.send(Settle(entries=entries))
        return answers

    def _single(self, rows: list[RowSettlement]) -> Counter[str]:
        return self._plain(*group_ranges(rows))

    def _plain(self, ranges: list[DeliveryRange], single: list[RowSettlement]) -> Counter[str]:
        """Settle without outputs. Failures go first, so that a delivery that is named twice is not acked."""
        entries = [_settlement(row) for row in single]
        entries += [Settlement(selector=acked.selector(whole=False), outcome=Outcome.ACK) for acked in ranges]
        answers = self._send(entries)
        counts = Counter(answer.verdict.value for answer in answers[: len(single)])
        for acked, answer in zip(ranges, answers[len(single) :], strict=True):
            counts += self._range_verdicts(acked, answer)
        return counts

    def _range_verdicts(self, acked_range: DeliveryRange, answer: Settled) -> Counter[str]:
        """Verdicts of a range's rows. If the range was not acked as a whole, ask for the verdict of each row."""
        size = acked_range.hi - acked_range.lo
        acked = answer.count if answer.verdict is Verdict.ACKED else 0
        if acked == size:
            return Counter({Verdict.ACKED.value: size})
        verdicts = Counter(row.verdict.value for row in self._send([_settlement(row) for row in acked_range.rows]))
        verdicts[Verdict.ALREADY.value] -= acked
        verdicts[Verdict.ACKED.value] += acked
        return +verdicts

    def _bundles(self, rows: list[RowSettlement]) -> Counter[str]:
        """Settle rows with outputs in one commit. If the store rejects a row, try again without that row."""
        outputs = [message for row in rows for message in row.outputs]
        if not outputs:
            return self._single(rows)
        try:
            return self._commit(*group_ranges(rows), _batches(outputs))
        except (RolledBack, LeaseLost):
            return self._without_refused(rows)
        except BadInput as problem:
            return self._without_bad(rows, problem)

    def _commit(
        self, ranges: list[DeliveryRange], single: list[RowSettlement], outputs: Iterable[PlainBatch | list[NewMessage]]
    ) -> Counter[str]:
        settlements = [_settlement(row) for row in single]
        settlements += [Settlement(selector=acked.selector(whole=True), outcome=Outcome.ACK) for acked in ranges]
        assert self._produce is not None
        command = Transaction(
            settlements=settlements,
            pushes=[Push(queue=self._produce, messages=batch, create=NEW_QUEUE_POLICY) for batch in outputs],
            on_duplicate="ok",
            on_already="fail",
        )
        done = self._transport.send(command)
        counts: Counter[str] = Counter()
        for answer in done.settled:
            counts[answer.verdict.value] += answer.count
        counts["outputs"] += sum(_pushed(receipts) for receipts in done.pushed)
        return counts

    def _without_refused(self, rows: list[RowSettlement]) -> Counter[str]:
        held = self._held({row.delivery_id.partition(".")[0] for row in rows})
        rest = [row for row in rows if _holds(held, row.delivery_id)]
        not_held = [row for row in rows if not _holds(held, row.delivery_id)]
        counts: Counter[str] = Counter()
        if not_held:
            # A release of deliveries that are not held changes nothing. Its verdicts tell why they were rejected.
            releases = [Settlement(selector=ByDelivery(row.delivery_id), outcome=Outcome.RELEASE) for row in not_held]
            for row, answer in zip(not_held, self._send(releases), strict=True):
                verdict = Verdict.STALE if answer.verdict is Verdict.RELEASED else answer.verdict
                counts[verdict.value] += 1
                if answer.verdict is Verdict.ALREADY:
                    counts[OUTPUTS_BEFORE] += len(row.outputs)
        if not rest:
            return counts
        if not_held:
            return counts + self._bundles(rest)
        # All are held and still rejected: a delivery is named twice. One by one, its second row is `already`.
        if len(rows) == 1:
            return counts + Counter({Verdict.STALE.value: 1})
        return sum((self._bundles([row]) for row in rows), counts)

    def _held(self, lease_ids: set[str]) -> dict[tuple[str, int], list[HeldRow]]:
        held: dict[tuple[str, int], list[HeldRow]] = {}
        for lease_id in lease_ids:
            for row in self._transport.ask(ListHeld(lease_id=lease_id)):
                held.setdefault((lease_id, row.lane), []).append(row)
        return held

    def _without_bad(self, rows: list[RowSettlement], problem: BadInput) -> Counter[str]:
        """Bisect to the record whose output cannot be pushed, and reject that record."""
        if len(rows) > 1:
            middle = len(rows) // 2
            return self._bundles(rows[:middle]) + self._bundles(rows[middle:])
        return self._single([unpushable(rows[0].delivery_id, problem)])


def unpushable(delivery_id: str, problem: BadInput) -> RowSettlement:
    """Rejection of a record whose output is no valid message."""
    text = f"the output cannot be pushed: {problem.message}"
    return RowSettlement(delivery_id, Outcome.REJECT, None, text, type(problem).__name__)


def _batches(outputs: list[NewMessage]) -> Iterator[PlainBatch | list[NewMessage]]:
    """Outputs by partition. Outputs without options go as columns, which is faster."""
    partitions: dict[str, list[NewMessage]] = {}
    for message in outputs:
        partitions.setdefault(message.partition, []).append(message)
    for messages in partitions.values():
        yield PlainBatch.of(messages) or messages


def _joined(batches: list[PlainBatch]) -> list[PlainBatch]:
    """Join the batches of each partition."""
    partitions: dict[str, list[PlainBatch]] = {}
    for batch in batches:
        partitions.setdefault(batch.partition, []).append(batch)
    return [
        PlainBatch(
            [payload for batch in parts for payload in batch.payloads],
            [name for batch in parts for name in batch.transaction_ids or ()],
            partition,
        )
        for partition, parts in partitions.items()
    ]


def _pushed(receipts: Receipts) -> int:
    """Number of new messages. After a seek back, the outputs of a record are duplicates."""
    return len(receipts) if receipts.run is not None else sum(receipt.status != "duplicate" for receipt in receipts)


def _holds(held: dict[tuple[str, int], list[HeldRow]], delivery_id: str) -> bool:
    key = ids.parse_delivery_id(delivery_id)
    if key is None:
        return False
    spans = held.get((delivery_id.partition(".")[0], key.lane), ())
    return any(span.lo <= key.seq < span.hi for span in spans)


def _chunks(rows: Sequence[RowSettlement], most: int) -> Iterator[list[RowSettlement]]:
    chunk: list[RowSettlement] = []
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


def _settlement(row: RowSettlement) -> Settlement:
    return Settlement(
        selector=ByDelivery(row.delivery_id),
        outcome=row.outcome,
        delay=row.delay,
        error=row.error,
        error_type=row.error_type,
        undecodable=row.undecodable,
    )


def group_ranges(rows: Sequence[RowSettlement]) -> tuple[list[DeliveryRange], list[RowSettlement]]:
    """Split rows into acked ranges and single rows."""
    seqs: dict[str, list[int]] = {}
    single: list[RowSettlement] = []
    for row in rows:
        head, dot, tail = row.delivery_id.rpartition(".")
        known = seqs.get(head + dot)
        if row.outcome is not Outcome.ACK:
            single.append(row)
        elif known is not None and tail.isascii() and tail.isalnum():
            # The prefix was parsed before, so the rest is a seq.
            known.append(int(tail, 36))
        elif ids.parse_delivery_id(row.delivery_id) is not None:
            seqs.setdefault(head + dot, []).append(int(tail, 36))
        else:
            single.append(row)
    return [acked for prefix, numbers in seqs.items() for acked in _ranges(prefix, numbers)], single


def _ranges(prefix: str, seqs: list[int]) -> Iterator[DeliveryRange]:
    seqs.sort()
    lo = hi = seqs[0]
    for seq in seqs:
        if seq != hi:
            yield DeliveryRange(prefix, lo, hi)
            lo = seq
        hi = seq + 1
    yield DeliveryRange(prefix, lo, hi)
