"""What the driver does with one batch: has it worked on, has the results written, has the records settled."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ackwise.client.transport import Transport
from ackwise.core.answers import Settled
from ackwise.core.commands import ByLease, Settle, Settlement
from ackwise.core.errors import BadInput
from ackwise.core.settlement import Outcome, Verdict
from ackwise.spark.folders import Folder
from ackwise.spark.pipelines import culprits, mapping
from ackwise.spark.pipelines.bundling import BundleTask, RejectTask
from ackwise.spark.pipelines.expecting import collecting
from ackwise.spark.pipelines.mapping import MapTask, SettleTask
from ackwise.spark.pipelines.plan import Mapped, Plan, Transformed, Write
from ackwise.spark.pipelines.records import Handler, takes_record
from ackwise.spark.settling import OUTPUTS_BEFORE, Row, Settler
from ackwise.spark.source.schemas import CORRUPT, STREAM

OPTIONAL = ("partition", "priority", "headers", "delay_seconds")
"""Columns of a transformed row that say how its output is pushed."""

WRITTEN = "_ackwise_written"
"""Says that a batch's folder is complete; Spark passes over files whose names begin so."""

_CHAINED = {
    "Project",
    "Filter",
    "Generate",
    "ArrowEvalPython",
    "BatchEvalPython",
    "SubqueryAlias",
}
"""Steps that keep the rows of one record next to each other in one task. A function over batches may move them."""

_CACHED = "InMemoryRelation"
_ALREADY = Verdict.ALREADY.value

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class Batches:
    """Works on batches as the plan says; `identity` names the query in what it writes."""

    def __init__(self, plan: Plan, transport: Transport, identity: str) -> None:
        self._plan, self._transport, self._identity = plan, transport, identity
        step = plan.step
        self._map: MapTask | None = None
        if not isinstance(step, Transformed):
            self._map = self._map_task(step)

    def _map_task(self, step: Mapped | None) -> MapTask:
        function, returns, timeout = _same, None, None
        if step is not None:
            function, returns, timeout = step.function, step.returns, step.timeout
        with_record = takes_record(function)
        handler = Handler(function, self._plan.schema, returns, with_record=with_record)
        # Workers keep a process for each; another run may have the same function with another schema or other globals.
        token = uuid.uuid4().hex
        return MapTask(self._plan.url, token, handler, self._plan.group, self._plan.produce, timeout, with_record)

    @property
    def reads(self) -> bool:
        """Whether tasks read messages themselves, and are told only where they are."""
        return self._map is not None

    def work(self, batch: DataFrame, number: int) -> Counter[str]:
        """Verdicts by name, `rows`, `outputs` and `filtered`."""
        if self._map is None:
            return self._transformed(batch, number)
        if self._plan.write is None:
            return _counted(batch, self._map.settle)
        return self._mapped(batch, number, self._map, self._plan.write)

    def _mapped(self, batch: DataFrame, number: int, task: MapTask, write: Write) -> Counter[str]:
        """The function runs once; its results are kept until they are written and settled."""
        with _kept(batch.mapInArrow(task.results, mapping.RESULTS)) as results:
            acked = f.col("outcome") == Outcome.ACK.value
            made = results.filter(acked).select("message_id", f.explode("outputs").alias("payload"))
            returns = self._plan.step.returns if isinstance(self._plan.step, Mapped) else None
            if returns is not None:
                made = made.select("message_id", f.from_json("payload", returns).alias("row"))
            failed = [row["message_id"] for row in results.filter(~acked).select("message_id").collect()]
            self._write(made, number, write, failed, ["payload"] if returns is None else ["row.*"])
            return _counted(results, SettleTask(self._plan.url, self._plan.group, self._plan.produce).settle)

    def _write(
        self, frame: DataFrame, number: int, write: Write, failed: Sequence[str] = (), columns: Sequence[str] = ("*",)
    ) -> None:
        """Write `columns` of a batch; `failed` are those of its records that nothing came out of."""
        if write.path is None:
            writer = frame.select(*columns).write.format(write.format).options(**write.options)
            writer.mode("append").save()
            return
        # Records are settled after they are written. A batch that is run again has only those that are not settled yet,
        # so what was written whole must not be written over; what came out of none of them then is written beside it.
        folder, name, again = Folder(frame.sparkSession, write.path), f"batch={self._identity}-{number}", 0
        while folder.exists(f"{name}/{WRITTEN}"):
            missing = set(folder.text(f"{name}/{WRITTEN}").split())
            if not missing:
                return
            again += 1
            name = f"batch={self._identity}-{number}-{again}"
            failed = [one for one in failed if one in missing]
            ids = frame.sparkSession.createDataFrame([(one,) for one in missing], "message_id string")
            frame = frame.join(ids, "message_id", "left_semi")
        writer = frame.select(*columns).write.format(write.format).options(**write.options)
        writer.mode("overwrite").save(f"{folder.url}/{name}")
        folder.create(f"{name}/{WRITTEN}", "\n".join(failed))

    def _transformed(self, batch: DataFrame, number: int) -> Counter[str]:
        with _kept(batch) as source:
            counts = Counter({"rows": source.count()})
            first = source.select("delivery_id").first()
            if first is None:
                return counts
            try:
                self._settle(source, number, counts)
            except culprits.BROKEN as problem:
                if not culprits.is_about_rows(problem):
                    raise
                found = culprits.search(source, self._evaluate)
                if not found:
                    raise
                counts += Settler(self._transport).settle(
                    [
                        Row(one, Outcome.RETRY, None, why, culprits.TransformFailed.__name__)
                        for one, why in found.items()
                    ]
                )
                self._settle(source.filter(~f.col("delivery_id").isin(list(found))), number, counts, again=True)
            counts += self._rest(first["delivery_id"])
            counts[Verdict.STALE.value] += counts["rows"] - sum(counts[verdict.value] for verdict in Verdict)
            return counts

    def _evaluate(self, part: DataFrame) -> None:
        """Have a part of a batch transformed, and nothing done with it."""
        with collecting() as broken:
            frame = self._apply(part, broken)
            for one in (frame, *broken):
                one.write.format("noop").mode("overwrite").save()

    def _apply(self, source: DataFrame, broken: list[DataFrame]) -> DataFrame:
        """What the transform makes of rows; those that cannot be read are broken before it sees them."""
        assert isinstance(self._plan.step, Transformed)
        frame = source
        if self._plan.schema is not None:
            why = f.concat(f.lit("the payload does not fit: "), f.col(CORRUPT)).alias("reason")
            unreadable = source.filter(f.col(CORRUPT).isNotNull())
            broken.append(unreadable.select("delivery_id", why, f.lit(True).alias("undecodable")))
            frame = source.filter(f.col(CORRUPT).isNull()).drop(CORRUPT)
        for function in self._plan.step.functions:
            frame = function(frame)
            if not isinstance(frame, DataFrame):
                raise BadInput(f".transform: a function answered {type(frame).__name__}, not a DataFrame")
        return frame

    def _settle(self, source: DataFrame, number: int, counts: Counter[str], *, again: bool = False) -> None:
        """Write, reject and produce, as the plan says. A rejected record has no outputs, so rejects go first.

        `again` when a first try broke: what that had acked was not counted, what it had rejected was.
        """
        with collecting() as broken:
            frame = self._apply(source, broken)
            if self._plan.write is not None:
                self._write(self._shown(frame), number, self._plan.write)
            if broken:
                told = _counted(reduce(DataFrame.unionAll, broken), RejectTask(self._plan.url).settle)
                counts.update({name: count for name, count in told.items() if not (again and name == _ALREADY)})
            if self._plan.produce is not None:
                told = self._produced(frame, source, self._plan.produce)
                if again:
                    told += Counter(
                        {Verdict.ACKED.value: told.pop(_ALREADY, 0), "outputs": told.pop(OUTPUTS_BEFORE, 0)}
                    )
                counts.update(told)
            elif self._plan.write is None:
                # Nothing else looks at the rows, and what fails must fail before they are acked.
                frame.write.format("noop").mode("overwrite").save()

    @staticmethod
    def _shown(frame: DataFrame) -> DataFrame:
        """A delivery is nobody's business once it is settled."""
        return frame.drop("delivery_id")

    def _produced(self, frame: DataFrame, source: DataFrame, produce: str) -> Counter[str]:
        schema = self._plan.schema
        rows = outputs(frame, () if schema is None else schema.names)
        if not _chained(rows, source):
            rows = rows.repartition("delivery_id").sortWithinPartitions("delivery_id")
        return _counted(rows, BundleTask(self._plan.url, self._plan.group, produce).settle)

    def _rest(self, delivery_id: str) -> Counter[str]:
        """What has no output is done: it was filtered out, or there is nothing to produce. None of it, if it is held
        no longer."""
        lease = ByLease(delivery_id.partition(".")[0])
        answers: list[Settled] = self._transport.send(Settle(entries=[Settlement(selector=lease, outcome=Outcome.ACK)]))
        done = answers[0].count if answers[0].verdict is Verdict.ACKED else 0
        return Counter({Verdict.ACKED.value: done, "filtered": done if self._plan.produce is not None else 0})


def outputs(frame: DataFrame, parsed: Sequence[str] = ()) -> DataFrame:
    """Rows as they are pushed: `payload` where it is all there is, else the columns that a message does not have, as
    one JSON object. `parsed` are the columns that came out of the payload."""
    if "delivery_id" not in frame.columns:
        raise BadInput(
            "produce needs the column delivery_id, and the transform has dropped it; keep it, or use mode log for "
            "aggregates over many records"
        )
    extras = [name for name in OPTIONAL if name in frame.columns]
    fields = [name for name in frame.columns if name not in (*STREAM.names, *OPTIONAL)]
    if "payload" in frame.columns:
        made = [name for name in fields if name not in parsed]
        if made:
            raise BadInput(
                f"produce finds payload and the column {made[0]!r}: drop payload to push the columns as JSON, or "
                "select payload without them"
            )
        payload = f.col("payload").cast("string").alias("payload")
    else:
        if not fields:
            raise BadInput("produce found no column to push: keep payload, or select what the output shall hold")
        payload = f.to_json(f.struct(*(f.col(f"`{name}`") for name in fields)), {"ignoreNullFields": "false"}).alias(
            "payload"
        )
    return frame.select("delivery_id", payload, *extras)


def _chained(frame: DataFrame, source: DataFrame) -> bool:
    """Whether nothing on the way from the source moved rows between tasks, or within one."""
    begin = _optimized(source)
    while begin.nodeName() in _CHAINED:
        begin = begin.children().head()
    node = _optimized(frame)
    while node.nodeName() in _CHAINED and node.children().size() == 1:
        node = node.children().head()
    # What a transform caches looks like the source, which is cached as well, and hides how it came about.
    return bool(node.nodeName() == begin.nodeName() == _CACHED and node.cacheBuilder().equals(begin.cacheBuilder()))


def _optimized(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().optimizedPlan()


def _same(value: Any) -> Any:
    return value


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    # On a cluster a second executor has it as well: what is made anew after one is lost might not be the same.
    local = str(frame.sparkSession.sparkContext.master).startswith("local")
    frame.persist(StorageLevel.MEMORY_AND_DISK if local else StorageLevel.MEMORY_AND_DISK_2)
    try:
        yield frame
    finally:
        frame.unpersist()


def _counted(frame: DataFrame, task: Task) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in frame.mapInArrow(task, mapping.COUNTS).collect():
        counts[row["name"]] += row["count"]
    return counts
