"""`.map(fn)` on the executors: records through the function in chunks, each chunk settled while the next one runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.core.settlement import Outcome
from ackwise.spark.failing import ours
from ackwise.spark.pipelines.isolation import runner
from ackwise.spark.pipelines.records import Answer, Failed, Handler, Item, Record
from ackwise.spark.pipelines.texts import Texts
from ackwise.spark.reach import kept
from ackwise.spark.settling import MOST_BUNDLES, MOST_BYTES, Neighbours, Row, Settler, Stretch
from ackwise.spark.source import stretches
from ackwise.spark.source.schemas import STREAM

CHUNK = 512
"""Records that go to the function's process at once."""
CHUNK_BYTES = 4 * 1024 * 1024
TOGETHER = 8
"""Chunks that are settled in one commit ..."""
LONGEST_WAIT = 0.05
"""... unless the function is so slow that the first of them would wait longer than so many seconds."""
MOST_OUTPUTS = 4 * CHUNK

COUNTS = "name string, count long"
"""What a settling task tells the driver."""
RESULTS = (
    "delivery_id string, message_id string, partition string, outcome string, delay long, error string, "
    "error_type string, undecodable boolean, outputs array<string>"
)
"""What a task tells that only runs the function; the driver has the outputs written before it has the rows settled."""

_RESULT_NAMES = tuple(column.split()[0] for column in RESULTS.split(", "))

_NEEDED = ("delivery_id", "message_id", "partition", "payload")
_FOR_RECORD = ("transaction_id", "queue", "priority", "seq", "attempt", "headers", "created_at")
"""What is read of a message: as little as possible."""

Worked = tuple[pa.RecordBatch, list[Answer]]
"""A chunk of records, and what the function made of them."""


class MapTask(msgspec.Struct, frozen=True):
    """What each task of a mapped batch is told."""

    url: str
    token: str
    handler: Handler
    group: str
    produce: str | None
    timeout: float | None
    with_record: bool

    def settle(self, places: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run and settle; the outputs go in one step with their record's settlement."""
        with ours():
            counts = _Settling(self).run(self._read(places))
            kept(self.url).finish_task()
        yield count_batch(counts)

    def results(self, places: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run only."""
        with ours():
            for chunk, answers in self.answered(self._read(places)):
                yield _result_batch(chunk, answers)

    def _read(self, places: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [*_NEEDED, *(_FOR_RECORD if self.with_record else ())]
        return stretches.read(self.url, places, StructType([STREAM[name] for name in names]))

    def answered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Worked]:
        """Each chunk with its answers, when its successor is in the process already."""
        process = runner(self.token, self.handler, self.timeout)
        before: pa.RecordBatch | None = None
        try:
            for chunk in (chunk for batch in batches for chunk in _chunks(batch)):
                items = _items(chunk, self.with_record)
                answers = None if before is None else process.finish(_blamed)
                process.begin(items)
                if answers is not None:
                    yield before, answers
                before = chunk
            if before is not None:
                yield before, process.finish(_blamed)
        finally:
            process.give_up()


def _blamed(_: Any, why: str, kind: str) -> Answer:
    return Failed(Outcome.RETRY, None, why, kind)


def _chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = CHUNK
    if batch.num_rows and batch.nbytes > CHUNK_BYTES:
        rows = max(1, min(CHUNK, CHUNK_BYTES * batch.num_rows // batch.nbytes))
    for at in range(0, batch.num_rows, rows):
        yield batch.slice(at, rows)


def _items(chunk: pa.RecordBatch, with_record: bool) -> Sequence[Item]:
    payloads = Texts.of(chunk.column("payload"))
    if not with_record:
        return payloads
    names = (
        "message_id",
        "transaction_id",
        "queue",
        "partition",
        "priority",
        "seq",
        "attempt",
        "headers",
        "created_at",
    )
    columns = [chunk.column(name).to_pylist() for name in names]
    columns[7] = [dict(one or ()) for one in columns[7]]
    return [(payload, Record(*cells)) for payload, *cells in zip(payloads, *columns, strict=True)]


class _Settling:
    """Settles chunks, several at once, while the function's process works on the next one.

    In one thread: a second one would wait for the first in the middle of a turn, and with it every other task.
    """

    def __init__(self, task: MapTask) -> None:
        self._task = task

    def run(self, batches: Iterator[pa.RecordBatch]) -> Counter[str]:
        counts: Counter[str] = Counter()
        waiting: list[Worked] = []
        since = time.monotonic()
        for worked in self._task.answered(batches):
            waiting.append(worked)
            if len(waiting) == TOGETHER or time.monotonic() > since + LONGEST_WAIT:
                counts += self._settle(waiting)
                waiting, since = [], time.monotonic()
        return counts + self._settle(waiting)

    def _settle(self, chunks: list[Worked]) -> Counter[str]:
        if not chunks:
            return Counter()
        task = self._task
        found = [_neighbours(*worked, task.group, task.produce) for worked in chunks]
        if len(found) > 1 and sum(one.weight for one in found if one is not None) > MOST_BYTES:
            return sum((self._settle([worked]) for worked in chunks), Counter())

        def rows() -> list[Row]:
            return [row for worked in chunks for row in _rows(*worked, task.group, task.produce)]

        settler = Settler(kept(task.url).transport, task.produce)
        together = [one for one in found if one is not None]
        counts = settler.settle_neighbours(together, rows) if len(together) == len(found) else settler.settle(rows())
        counts["rows"] += sum(chunk.num_rows for chunk, _ in chunks)
        return counts


def _rising(names: pa.Array) -> bool:
    """Whether deliveries of one lane are in order: the longer one's number is the larger, of two alike the later."""
    before, after = names[:-1], names[1:]
    shorter, longer = pc.binary_length(before), pc.binary_length(after)
    later = pc.and_(pc.equal(shorter, longer), pc.less(before, after))
    return pc.all(pc.or_(pc.less(shorter, longer), later), min_count=0).as_py() is True


def _neighbours(chunk: pa.RecordBatch, answers: list[Answer], group: str, produce: str | None) -> Neighbours | None:
    """What a chunk nearly always is: neighbours in one lane, for none of which more is made than needed."""
    names = chunk.column("delivery_id")
    whole = Stretch.between(names[0].as_py(), names[-1].as_py(), len(names))
    if whole is None or not _rising(names):
        return None
    failed = [(seq, one) for seq, one in enumerate(answers, whole.lo) if isinstance(one, Failed)]
    acked = whole.without(seq for seq, _ in failed)
    rows = [Row(whole.name(seq), *one) for seq, one in failed]
    payloads: list[bytes] = []
    transaction_ids: list[str] = []
    if produce is not None:
        message_ids = chunk.column("message_id").to_pylist()
        for message_id, answer in zip(message_ids, answers, strict=True):
            if type(answer) is bytes:
                payloads.append(answer)
                transaction_ids.append(f"{group}:{message_id}:0")
            elif type(answer) is list:
                payloads += answer
                transaction_ids += [derived_id(group, message_id, at) for at in range(len(answer))]
    if len(payloads) > MOST_OUTPUTS or sum(map(len, payloads)) > MOST_BYTES:
        return None
    outputs = PlainBatch(payloads, transaction_ids, chunk.column("partition")[0].as_py())
    return Neighbours(acked, rows, outputs if payloads else None)


def _rows(chunk: pa.RecordBatch, answers: list[Answer], group: str, produce: str | None) -> Iterator[Row]:
    columns = (chunk.column(name).to_pylist() for name in ("delivery_id", "message_id", "partition"))
    for delivery_id, message_id, partition, answer in zip(*columns, answers, strict=True):
        if isinstance(answer, Failed):
            yield Row(delivery_id, *answer)
        elif answer is None or produce is None:
            yield Row(delivery_id)
        else:
            outputs = answer if isinstance(answer, list) else [answer]
            yield Row(delivery_id, outputs=produced(outputs, group, message_id, partition))


def produced(outputs: Iterable[bytes], group: str, message_id: str, partition: str) -> list[NewMessage]:
    """Outputs of one record. Their transaction ids come from it, so that the same outputs are never there twice."""
    return [
        NewMessage(payload, partition, transaction_id=derived_id(group, message_id, at))
        for at, payload in enumerate(outputs)
    ]


def derived_id(group: str, message_id: str, at: int) -> str:
    return f"{group}:{message_id}:{at}"


def count_batch(counts: Counter[str]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(list(counts), pa.string()), pa.array(list(counts.values()), pa.int64())], names=["name", "count"]
    )


def _result_batch(chunk: pa.RecordBatch, answers: list[Answer]) -> pa.RecordBatch:
    failed = [one if isinstance(one, Failed) else Failed(Outcome.ACK, None, None, None) for one in answers]
    outputs = [
        None if one is None or isinstance(one, Failed) else [text.decode() for text in _listed(one)] for one in answers
    ]
    return pa.record_batch(
        [
            chunk.column("delivery_id"),
            chunk.column("message_id"),
            chunk.column("partition"),
            pa.array([one.outcome.value for one in failed], pa.string()),
            pa.array([one.delay for one in failed], pa.int64()),
            pa.array([one.error for one in failed], pa.string()),
            pa.array([one.error_type for one in failed], pa.string()),
            pa.array([one.undecodable for one in failed], pa.bool_()),
            pa.array(outputs, pa.list_(pa.string())),
        ],
        names=list(_RESULT_NAMES),
    )


def _listed(answer: bytes | list[bytes]) -> list[bytes]:
    return answer if isinstance(answer, list) else [answer]


class SettleTask(msgspec.Struct, frozen=True):
    """Settles rows of `RESULTS`."""

    url: str
    group: str
    produce: str | None

    def settle(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ours():
            here = kept(self.url)
            settler = Settler(here.transport, self.produce)
            counts: Counter[str] = Counter()
            for batch in batches:
                for at in range(0, batch.num_rows, MOST_BUNDLES):
                    part = batch.slice(at, MOST_BUNDLES)
                    counts += settler.settle(list(self._rows(part)))
                    counts["rows"] += part.num_rows
            here.finish_task()
        yield count_batch(counts)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        columns = (batch.column(name).to_pylist() for name in _RESULT_NAMES)
        for delivery_id, message_id, partition, outcome, delay, error, kind, undecodable, outputs in zip(
            *columns, strict=True
        ):
            made = [text.encode() for text in outputs or ()] if self.produce is not None else []
            messages = produced(made, self.group, message_id, partition)
            yield Row(delivery_id, Outcome(outcome), delay, error, kind, undecodable, messages)
