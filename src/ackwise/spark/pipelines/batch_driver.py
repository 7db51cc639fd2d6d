"""One batch on the driver: runs the tasks, writes the results and settles the records."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ackwise.client.transport import Transport
from ackwise.core.commands import ByLease, Settle, Settlement
from ackwise.core.errors import BadInput
from ackwise.core.settlement import Outcome, Verdict
from ackwise.spark.bulk_settlement import OUTPUTS_BEFORE, RowSettlement, Settler
from ackwise.spark.pipelines import failure_bisect, map_task
from ackwise.spark.pipelines.batch_output import keeps_rows_together, outputs, write_batch
from ackwise.spark.pipelines.map_task import MapTask, SettleTask
from ackwise.spark.pipelines.plan import MapStep, PipelinePlan, TransformStep, Write
from ackwise.spark.pipelines.record_handler import Handler, takes_record
from ackwise.spark.pipelines.transform_task import BundleTask, RejectTask, collect_rejects
from ackwise.spark.source.schemas import CORRUPT

_ALREADY = Verdict.ALREADY.value

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class BatchDriver:
    """Runs batches by the plan. `identity` is part of the names of the folders that it writes."""

    def __init__(self, plan: PipelinePlan, transport: Transport, identity: str) -> None:
        self._plan, self._transport, self._identity = plan, transport, identity
        step = plan.step
        self._map: MapTask | None = None
        if not isinstance(step, TransformStep):
            self._map = self._map_task(step)

    def _map_task(self, step: MapStep | None) -> MapTask:
        function, returns, timeout = _identity_function, None, None
        if step is not None:
            function, returns, timeout = step.function, step.returns, step.timeout
        with_record = takes_record(function)
        handler = Handler(function, self._plan.schema, returns, with_record=with_record)
        # A worker keeps one child process per token. Another run may use the function with another schema or globals.
        token = uuid.uuid4().hex
        return MapTask(self._plan.url, token, handler, self._plan.group, self._plan.produce, timeout, with_record)

    @property
    def reads(self) -> bool:
        """Whether tasks get lane ranges and read the messages themselves."""
        return self._map is not None

    def work(self, batch: DataFrame, number: int) -> Counter[str]:
        """Run one batch. Returns counts: verdicts by name, `rows`, `outputs` and `filtered`."""
        if self._map is None:
            return self._transform_batch(batch, number)
        if self._plan.write is None:
            return _run_task(batch, self._map.settle)
        return self._map_batch(batch, number, self._map, self._plan.write)

    def _map_batch(self, batch: DataFrame, number: int, task: MapTask, write: Write) -> Counter[str]:
        """Map with `.write`: run the function once, cache its results, write them, then settle."""
        with _cached(batch.mapInArrow(task.results, map_task.RESULTS)) as results:
            acked = f.col("outcome") == Outcome.ACK.value
            made = results.filter(acked).select("message_id", f.explode("outputs").alias("payload"))
            returns = self._plan.step.returns if isinstance(self._plan.step, MapStep) else None
            if returns is not None:
                made = made.select("message_id", f.from_json("payload", returns).alias("row"))
            failed = [row["message_id"] for row in results.filter(~acked).select("message_id").collect()]
            columns = ["payload"] if returns is None else ["row.*"]
            write_batch(made, self._name(number), write, failed, columns)
            return _run_task(results, SettleTask(self._plan.url, self._plan.group, self._plan.produce).settle)

    def _name(self, number: int) -> str:
        return f"{self._identity}-{number}"

    def _transform_batch(self, batch: DataFrame, number: int) -> Counter[str]:
        with _cached(batch) as source:
            counts = Counter({"rows": source.count()})
            first = source.select("delivery_id").first()
            if first is None:
                return counts
            try:
                self._settle_transformed(source, number, counts)
            except failure_bisect.TRANSFORM_ERRORS as problem:
                if not failure_bisect.is_about_rows(problem):
                    raise
                failing = failure_bisect.find_failing(source, self._evaluate)
                if not failing:
                    raise
                counts += Settler(self._transport).settle(
                    [
                        RowSettlement(delivery_id, Outcome.RETRY, None, why, failure_bisect.TransformFailed.__name__)
                        for delivery_id, why in failing.items()
                    ]
                )
                self._settle_transformed(
                    source.filter(~f.col("delivery_id").isin(list(failing))), number, counts, again=True
                )
            counts += self._ack_rest(first["delivery_id"])
            counts[Verdict.STALE.value] += counts["rows"] - sum(counts[verdict.value] for verdict in Verdict)
            return counts

    def _evaluate(self, part: DataFrame) -> None:
        """Transform a part of a batch and discard the result."""
        with collect_rejects() as rejects:
            frame = self._apply(part, rejects)
            for result in (frame, *rejects):
                result.write.format("noop").mode("overwrite").save()

    def _apply(self, source: DataFrame, rejects: list[DataFrame]) -> DataFrame:
        """Apply the transform to the rows. Adds rows with an unreadable payload to `rejects` before."""
        assert isinstance(self._plan.step, TransformStep)
        frame = source
        if self._plan.schema is not None:
            why = f.concat(f.lit("the payload does not fit: "), f.col(CORRUPT)).alias("reason")
            unreadable = source.filter(f.col(CORRUPT).isNotNull())
            rejects.append(unreadable.select("delivery_id", why, f.lit(True).alias("undecodable")))
            frame = source.filter(f.col(CORRUPT).isNull()).drop(CORRUPT)
        for function in self._plan.step.functions:
            frame = function(frame)
            if not isinstance(frame, DataFrame):
                raise BadInput(f".transform: a function returned {type(frame).__name__}, not a DataFrame")
        return frame

    def _settle_transformed(self, source: DataFrame, number: int, counts: Counter[str], *, again: bool = False) -> None:
        """Write, reject and produce by the plan. Rejects go first, because a rejected record has no outputs.

        `again` marks the second attempt after a failed one. The first attempt counted its rejects and not its acks.
        """
        with collect_rejects() as rejects:
            frame = self._apply(source, rejects)
            if self._plan.write is not None:
                write_batch(self._without_delivery(frame), self._name(number), self._plan.write)
            if rejects:
                verdicts = _run_task(reduce(DataFrame.unionAll, rejects), RejectTask(self._plan.url).settle)
                counts.update({name: count for name, count in verdicts.items() if not (again and name == _ALREADY)})
            if self._plan.produce is not None:
                verdicts = self._produce(frame, source, self._plan.produce)
                if again:
                    verdicts += Counter(
                        {Verdict.ACKED.value: verdicts.pop(_ALREADY, 0), "outputs": verdicts.pop(OUTPUTS_BEFORE, 0)}
                    )
                counts.update(verdicts)
            elif self._plan.write is None:
                # No other step evaluates the rows, and an error must appear before the records are acked.
                frame.write.format("noop").mode("overwrite").save()

    @staticmethod
    def _without_delivery(frame: DataFrame) -> DataFrame:
        return frame.drop("delivery_id")

    def _produce(self, frame: DataFrame, source: DataFrame, produce: str) -> Counter[str]:
        schema = self._plan.schema
        rows = outputs(frame, () if schema is None else schema.names)
        if not keeps_rows_together(rows, source):
            rows = rows.repartition("delivery_id").sortWithinPartitions("delivery_id")
        return _run_task(rows, BundleTask(self._plan.url, self._plan.group, produce).settle)

    def _ack_rest(self, delivery_id: str) -> Counter[str]:
        """Ack the records without outputs. If the lease is lost, acks none."""
        lease = ByLease(delivery_id.partition(".")[0])
        answers = self._transport.send(Settle(entries=[Settlement(selector=lease, outcome=Outcome.ACK)]))
        done = answers[0].count if answers[0].verdict is Verdict.ACKED else 0
        return Counter({Verdict.ACKED.value: done, "filtered": done if self._plan.produce is not None else 0})


def _identity_function(value: Any) -> Any:
    return value


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    # On a cluster two executors keep a copy. Rows that are computed again after a loss may differ.
    local = str(frame.sparkSession.sparkContext.master).startswith("local")
    frame.persist(StorageLevel.MEMORY_AND_DISK if local else StorageLevel.MEMORY_AND_DISK_2)
    try:
        yield frame
    finally:
        frame.unpersist()


def _run_task(frame: DataFrame, task: Task) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in frame.mapInArrow(task, map_task.COUNTS).collect():
        counts[row["name"]] += row["count"]
    return counts
