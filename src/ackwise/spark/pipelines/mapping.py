"""`.map(fn)` on the executors: records through the function in chunks, each chunk settled while the next one runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import pyarrow as pa

from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.spark.failing import ours
from ackwise.spark.pipelines.isolation import runner
from ackwise.spark.pipelines.records import Answer, Failed, Handler, Record
from ackwise.spark.reach import kept
from ackwise.spark.settling import Row, Settler

CHUNK = 1000
CHUNK_BYTES = 4 * 1024 * 1024

COUNTS = "name string, count long"
"""What a settling task tells the driver."""
RESULTS = (
    "delivery_id string, message_id string, partition string, outcome string, delay long, error string, "
    "error_type string, undecodable boolean, outputs array<string>"
)
"""What a task tells that only runs the function; the driver has the outputs written before it has the rows settled."""

_RESULT_NAMES = tuple(column.split()[0] for column in RESULTS.split(", "))

NEEDED = ("delivery_id", "message_id", "partition", "payload")
FOR_RECORD = ("transaction_id", "queue", "priority", "seq", "attempt", "headers", "created_at")


class MapTask(msgspec.Struct, frozen=True):
    """What each task of a mapped batch is told."""

    url: str
    token: str
    handler: Handler
    group: str
    produce: str | None
    timeout: float | None
    with_record: bool

    def settle(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run and settle; the outputs go in one step with their record's settlement."""
        with ours():
            counts = _Settling(self).run(batches)
            kept(self.url).finish_task()
        yield count_batch(counts)

    def results(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run only."""
        with ours():
            for chunk, answers in self.answered(batches, _nothing):
                yield _result_batch(chunk, answers)

    def answered(
        self, batches: Iterator[pa.RecordBatch], before_fork: Callable[[], object]
    ) -> Iterator[tuple[pa.RecordBatch, list[Answer]]]:
        """Chunks of records, and what the function made of them."""
        process = runner(self.token, self.handler, self.timeout)
        for batch in batches:
            for chunk in _chunks(batch):
                yield chunk, process.run(_items(chunk, self.with_record), _blamed, before_fork)


def _nothing() -> None:
    """There is nothing to wait for."""


def _blamed(_: Any, why: str, kind: str) -> Answer:
    return Failed(Outcome.RETRY, None, why, kind)


def _chunks(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = CHUNK
    if batch.num_rows and batch.nbytes > CHUNK_BYTES:
        rows = max(1, min(CHUNK, CHUNK_BYTES * batch.num_rows // batch.nbytes))
    for at in range(0, batch.num_rows, rows):
        yield batch.slice(at, rows)


def _items(chunk: pa.RecordBatch, with_record: bool) -> list[tuple[str, Record | None]]:
    payloads = chunk.column("payload").to_pylist()
    if not with_record:
        return [(payload, None) for payload in payloads]
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
    """Settles chunks, one after the other, in a thread beside the one that runs records."""

    def __init__(self, task: MapTask) -> None:
        self._task = task
        self._under_way: Future[Counter[str]] | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Counter[str]:
        counts: Counter[str] = Counter()
        with ThreadPoolExecutor(1) as beside:
            # A process that dies is forked anew when nobody uses a connection.
            for chunk, answers in self._task.answered(batches, self._wait):
                counts += self._wait()
                self._under_way = beside.submit(self._settle, chunk, answers)
            counts += self._wait()
        return counts

    def _wait(self) -> Counter[str]:
        """What the chunk before came to; it is counted once, however often this is asked."""
        return Counter() if self._under_way is None else self._under_way.result()

    def _settle(self, chunk: pa.RecordBatch, answers: list[Answer]) -> Counter[str]:
        settler = Settler(kept(self._task.url).transport, self._task.produce)
        counts = settler.settle(list(_rows(chunk, answers, self._task.group, self._task.produce)))
        counts["rows"] += chunk.num_rows
        return counts


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
                for at in range(0, batch.num_rows, CHUNK):
                    part = batch.slice(at, CHUNK)
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
