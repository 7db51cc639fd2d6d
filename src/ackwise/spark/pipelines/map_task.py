"""`.map` on executors: reads records, runs the function, settles the records with their outputs."""

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
from ackwise.spark.bulk_settlement import (
    MOST_BUNDLES,
    MOST_BYTES,
    ChunkSettlement,
    DeliveryRange,
    RowSettlement,
    Settler,
)
from ackwise.spark.connections import task_connection
from ackwise.spark.errors import marked_errors
from ackwise.spark.pipelines.record_handler import Answer, Failure, Handler, HandlerInput, Record, TextColumn
from ackwise.spark.pipelines.subprocess_runner import runner
from ackwise.spark.source import lane_ranges
from ackwise.spark.source.schemas import STREAM

CHUNK = 512
"""Records per message to the child process."""
CHUNK_BYTES = 4 * 1024 * 1024
TOGETHER = 8
"""Chunks per commit."""
LONGEST_WAIT = 0.05
"""Seconds after which a commit takes fewer chunks, because the function is slow."""
MOST_OUTPUTS = 4 * CHUNK

COUNTS = "name string, count long"
"""Columns of the counts that a task returns to the driver."""
RESULTS = (
    "delivery_id string, message_id string, partition string, outcome string, delay long, error string, "
    "error_type string, undecodable boolean, outputs array<string>"
)
"""Columns of the results of a task that only runs the function. The driver writes the outputs before it settles."""

_RESULT_NAMES = tuple(column.split()[0] for column in RESULTS.split(", "))

_NEEDED = ("delivery_id", "message_id", "partition", "payload")
_FOR_RECORD = ("transaction_id", "queue", "priority", "seq", "attempt", "headers", "created_at")
"""Columns to read: `_NEEDED` always, `_FOR_RECORD` only for a function with two parameters."""

AnsweredChunk = tuple[pa.RecordBatch, list[Answer]]
"""Chunk of records, and the function's answer for each."""


class MapTask(msgspec.Struct, frozen=True):
    """Task of a mapped batch, sent to the executors."""

    url: str
    token: str
    handler: Handler
    group: str
    produce: str | None
    timeout: float | None
    with_record: bool

    def settle(self, encoded: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the function and settle. Each record's outputs commit with its settlement."""
        with marked_errors():
            counts = _ChunkSettler(self).run(self._read(encoded))
            task_connection(self.url).finish_task()
        yield count_batch(counts)

    def results(self, encoded: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the function without settling."""
        with marked_errors():
            for chunk, answers in self.answered(self._read(encoded)):
                yield _result_batch(chunk, answers)

    def _read(self, encoded: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [*_NEEDED, *(_FOR_RECORD if self.with_record else ())]
        return lane_ranges.read(self.url, encoded, StructType([STREAM[name] for name in names]))

    def answered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[AnsweredChunk]:
        """Each chunk with its answers. The child process works on the next chunk meanwhile."""
        process = runner(self.token, self.handler, self.timeout)
        before: pa.RecordBatch | None = None
        try:
            for chunk in (chunk for batch in batches for chunk in _chunks(batch)):
                items = _handler_inputs(chunk, self.with_record)
                answers = None if before is None else process.finish(_retry_failure)
                process.begin(items)
                if answers is not None:
                    yield before, answers
                before = chunk
            if before is not None:
                yield before, process.finish(_retry_failure)
        finally:
            process.discard()


def _retry_failure(_: Any, why: str, kind: str) -> Answer:
    return Failure(Outcome.RETRY, None, why, kind)


def _chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = CHUNK
    if batch.num_rows and batch.nbytes > CHUNK_BYTES:
        rows = max(1, min(CHUNK, CHUNK_BYTES * batch.num_rows // batch.nbytes))
    for at in range(0, batch.num_rows, rows):
        yield batch.slice(at, rows)


def _handler_inputs(chunk: pa.RecordBatch, with_record: bool) -> Sequence[HandlerInput]:
    payloads = TextColumn.of(chunk.column("payload"))
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
    columns[7] = [dict(headers or ()) for headers in columns[7]]
    return [(payload, Record(*cells)) for payload, *cells in zip(payloads, *columns, strict=True)]


class _ChunkSettler:
    """Settles several chunks per commit while the child process works on the next chunk.

    It uses one thread: a second thread could stop in the middle of a turn and block every other task.
    """

    def __init__(self, task: MapTask) -> None:
        self._task = task

    def run(self, batches: Iterator[pa.RecordBatch]) -> Counter[str]:
        counts: Counter[str] = Counter()
        waiting: list[AnsweredChunk] = []
        since = time.monotonic()
        for chunk in self._task.answered(batches):
            waiting.append(chunk)
            if len(waiting) == TOGETHER or time.monotonic() > since + LONGEST_WAIT:
                counts += self._settle(waiting)
                waiting, since = [], time.monotonic()
        return counts + self._settle(waiting)

    def _settle(self, chunks: list[AnsweredChunk]) -> Counter[str]:
        if not chunks:
            return Counter()
        task = self._task
        settlements = [_chunk_settlement(*chunk, task.group, task.produce) for chunk in chunks]
        ready = [settlement for settlement in settlements if settlement is not None]
        if len(chunks) > 1 and sum(settlement.weight for settlement in ready) > MOST_BYTES:
            return sum((self._settle([chunk]) for chunk in chunks), Counter())

        def rows() -> list[RowSettlement]:
            return [row for chunk in chunks for row in _rows(*chunk, task.group, task.produce)]

        settler = Settler(task_connection(task.url).transport, task.produce)
        counts = settler.settle_chunks(ready, rows) if len(ready) == len(chunks) else settler.settle(rows())
        counts["rows"] += sum(chunk.num_rows for chunk, _ in chunks)
        return counts


def _ascend(names: pa.Array) -> bool:
    """Whether the delivery ids of one lane ascend. Ids are base 36: a longer id has the larger seq."""
    before, after = names[:-1], names[1:]
    shorter, longer = pc.binary_length(before), pc.binary_length(after)
    later = pc.and_(pc.equal(shorter, longer), pc.less(before, after))
    return pc.all(pc.or_(pc.less(shorter, longer), later), min_count=0).as_py() is True


def _chunk_settlement(
    chunk: pa.RecordBatch, answers: list[Answer], group: str, produce: str | None
) -> ChunkSettlement | None:
    """Settlement of a chunk as ranges, the usual and fast case. None if the chunk is no gapless range of one lane."""
    names = chunk.column("delivery_id")
    whole = DeliveryRange.between(names[0].as_py(), names[-1].as_py(), len(names))
    if whole is None or not _ascend(names):
        return None
    failed = [(seq, answer) for seq, answer in enumerate(answers, whole.lo) if isinstance(answer, Failure)]
    acked = whole.without(seq for seq, _ in failed)
    rows = [RowSettlement(whole.name(seq), *failure) for seq, failure in failed]
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
    return ChunkSettlement(acked, rows, outputs if payloads else None)


def _rows(chunk: pa.RecordBatch, answers: list[Answer], group: str, produce: str | None) -> Iterator[RowSettlement]:
    columns = (chunk.column(name).to_pylist() for name in ("delivery_id", "message_id", "partition"))
    for delivery_id, message_id, partition, answer in zip(*columns, answers, strict=True):
        if isinstance(answer, Failure):
            yield RowSettlement(delivery_id, *answer)
        elif answer is None or produce is None:
            yield RowSettlement(delivery_id)
        else:
            outputs = answer if isinstance(answer, list) else [answer]
            yield RowSettlement(delivery_id, outputs=produced(outputs, group, message_id, partition))


def produced(outputs: Iterable[bytes], group: str, message_id: str, partition: str) -> list[NewMessage]:
    """Outputs of one record as messages. Transaction ids derive from the record, so a rerun pushes no duplicates."""
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
    results = [answer if isinstance(answer, Failure) else Failure(Outcome.ACK, None, None, None) for answer in answers]
    outputs = [
        None if answer is None or isinstance(answer, Failure) else [text.decode() for text in _listed(answer)]
        for answer in answers
    ]
    return pa.record_batch(
        [
            chunk.column("delivery_id"),
            chunk.column("message_id"),
            chunk.column("partition"),
            pa.array([result.outcome.value for result in results], pa.string()),
            pa.array([result.delay for result in results], pa.int64()),
            pa.array([result.error for result in results], pa.string()),
            pa.array([result.error_type for result in results], pa.string()),
            pa.array([result.undecodable for result in results], pa.bool_()),
            pa.array(outputs, pa.list_(pa.string())),
        ],
        names=list(_RESULT_NAMES),
    )


def _listed(answer: bytes | list[bytes]) -> list[bytes]:
    return answer if isinstance(answer, list) else [answer]


class SettleTask(msgspec.Struct, frozen=True):
    """Task that settles rows of `RESULTS`."""

    url: str
    group: str
    produce: str | None

    def settle(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with marked_errors():
            connection = task_connection(self.url)
            settler = Settler(connection.transport, self.produce)
            counts: Counter[str] = Counter()
            for batch in batches:
                for at in range(0, batch.num_rows, MOST_BUNDLES):
                    part = batch.slice(at, MOST_BUNDLES)
                    counts += settler.settle(list(self._rows(part)))
                    counts["rows"] += part.num_rows
            connection.finish_task()
        yield count_batch(counts)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[RowSettlement]:
        columns = (batch.column(name).to_pylist() for name in _RESULT_NAMES)
        for delivery_id, message_id, partition, outcome, delay, error, kind, undecodable, outputs in zip(
            *columns, strict=True
        ):
            payloads = [text.encode() for text in outputs or ()] if self.produce is not None else []
            messages = produced(payloads, self.group, message_id, partition)
            yield RowSettlement(delivery_id, Outcome(outcome), delay, error, kind, undecodable, messages)
