"""A pipeline at work: Spark's query, what came of the records, and the end of it."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ackwise.core.commands import ConfigureGroup, giving_back
from ackwise.core.errors import AckwiseError, Conflict
from ackwise.core.limits import MICROS
from ackwise.core.queries import GetQueue, GroupStats, LeaseRow, ListGroups, ListLeases, QueueStats, Stats
from ackwise.spark.failing import line_of, reason
from ackwise.spark.folders import Folder
from ackwise.spark.pipelines.batches import Batches
from ackwise.spark.pipelines.checkpoints import Identity, identity
from ackwise.spark.pipelines.plan import Plan
from ackwise.spark.reach import Reach, reach
from ackwise.spark.refusals import told
from ackwise.spark.source.options import start_at
from ackwise.spark.source.schemas import STRETCHES

if TYPE_CHECKING:
    from ackwise.spark.progress import StreamProgress

LOOK_EVERY = 0.2
STOP_PATIENCE = 30.0


def claim_name_of(group: str) -> str:
    """What the claims of a group are called unless somebody says otherwise: claim names have no slash."""
    return group.replace("/", ".")


class PipelineFailed(AckwiseError):
    """The pipeline stopped because of an error; what it had settled stays settled."""

    code = "pipeline_failed"


class Totals(msgspec.Struct):
    """What came of the records so far. A record that was retried twice is counted twice, and once where it ended."""

    batches: int = 0
    rows: int = 0
    """Deliveries worked on."""
    acked: int = 0
    filtered: int = 0
    """Of the acked: those that a transform left out."""
    retried: int = 0
    dead: int = 0
    stale: int = 0
    """Settlements that came too late: those records are delivered again, to us or to somebody else."""
    already: int = 0
    """Settlements that an earlier try had made."""
    outputs: int = 0

    def add(self, counts: Counter[str]) -> None:
        self.batches += 1
        for name in ("rows", "acked", "filtered", "retried", "dead", "stale", "already", "outputs"):
            setattr(self, name, getattr(self, name) + counts[name])
        self.stale += counts["unknown"]

    def outcomes(self) -> dict[str, int]:
        return {"acked": self.acked, "retried": self.retried, "dead": self.dead, "stale": self.stale}


class Running:
    """A pipeline that was started. Its `totals` grow with every batch."""

    def __init__(
        self, plan: Plan, opened: Reach, who: Identity, checkpoint: str, progress: StreamProgress | None
    ) -> None:
        self._plan, self._reach, self._who, self._progress = plan, opened, who, progress
        self._checkpoint = checkpoint
        self._batches = Batches(plan, opened.transport, who.nonce[:8])
        self.totals = Totals()
        self._problem: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._spark: SparkSession | None = None
        self._closed = threading.Lock()
        self._at_work = threading.Lock()
        self._stopping = False
        self._shown = ExitStack()

    @classmethod
    def begin(cls, spark: SparkSession, plan: Plan, checkpoint: str, *, progress: bool, trigger: str) -> Running:
        running = cls._ready(spark, plan, checkpoint, progress=progress)
        running._start(spark, trigger)
        return running

    @classmethod
    def to_the_end(
        cls, spark: SparkSession, plan: Plan, checkpoint: str, *, progress: bool, stop: threading.Event | None
    ) -> Totals:
        """Until nothing is left, or `stop` is set. Without anything to do Spark is not troubled at all."""
        running = cls._ready(spark, plan, checkpoint, progress=progress)
        try:
            done = running._done()
        except BaseException:
            running._reach.close()
            raise
        if done:
            running._close()
            return running.totals
        running._start(spark, "0 seconds")
        return running._until_done(stop)

    @classmethod
    def _ready(cls, spark: SparkSession, plan: Plan, checkpoint: str, *, progress: bool) -> Running:
        from ackwise.spark.progress import StreamProgress

        opened = reach(plan.url, duties=True)
        try:
            with told(f"the checkpoint {checkpoint}"):
                folder = Folder(spark, checkpoint)
            opened.transport.send(
                ConfigureGroup(queue=plan.queue, group=plan.group, start=start_at(plan.start, "start"))
            )
            who = identity(folder, plan.queue, plan.group, plan.claim_name or claim_name_of(plan.group))
            shown = StreamProgress(f"{plan.queue} → {plan.group}") if progress else None
            return cls(plan, opened, who, folder.url, shown)
        except BaseException:
            opened.close()
            raise

    def _start(self, spark: SparkSession, trigger: str) -> None:
        try:
            with told():
                self._query = self._started(spark, trigger)
                self._spark = spark
        except BaseException:
            self._shown.close()
            self._reach.close()
            raise

    def _started(self, spark: SparkSession, trigger: str) -> StreamingQuery:
        plan = self._plan
        options = {
            "url": plan.url,
            "queue": plan.queue,
            "group": plan.group,
            "claimName": self._who.claim_name,
            "nonce": self._who.nonce,
            "startingPosition": plan.start,
            "maxRowsPerTrigger": str(plan.max_rows),
            "leaseSeconds": str(plan.lease / MICROS),
            "maxPartitions": str(plan.max_partitions or spark.sparkContext.defaultParallelism),
            # A batch of ours settles every record; one that it left out was not worked on.
            "unsettled": "release",
        }
        reader = spark.readStream.format("ackwise").options(**options)
        if self._batches.reads:
            reader = reader.schema(STRETCHES)
        elif plan.schema is not None:
            reader = reader.option("payloadSchema", plan.schema.json())
        frame = reader.load()
        if self._progress is not None:
            self._shown.enter_context(self._progress)
        writer = frame.writeStream.foreachBatch(self._work).option("checkpointLocation", self._checkpoint)
        return writer.trigger(processingTime=trigger).start()

    @property
    def query(self) -> StreamingQuery:
        """Spark's own handle."""
        assert self._query is not None
        return self._query

    def _work(self, batch: DataFrame, number: int) -> None:
        with self._at_work:
            if self._stopping:
                return  # it is given back
            try:
                self.totals.add(self._batches.work(batch, number))
            except BaseException as problem:
                if not self._stopping:
                    self._problem = problem
                raise
        self._show()

    def _show(self, *, done: bool = False) -> None:
        if self._progress is None:
            return
        with suppress(AckwiseError):  # a look that failed is no reason to stop
            self._progress.update(self.totals.rows, self.totals.outcomes(), self.lag(), done=done)

    def lag(self) -> int:
        """Records that the group has yet to finish."""
        groups: list[GroupStats] = self._reach.transport.ask(ListGroups(queue=self._plan.queue, group=self._plan.group))
        return sum(group.lag for group in groups)

    def _done(self) -> bool:
        """Nothing to do now, and nothing that waits for its time."""
        if self.lag():
            return False
        stats: Stats = self._reach.transport.ask(QueueStats(queue=self._plan.queue))
        return not stats.scheduled and not self.lag()

    def _until_done(self, stop: threading.Event | None) -> Totals:
        """Wait until nothing is left, or `stop` is set, and stop."""
        try:
            while self.query.isActive and not (stop is not None and stop.is_set()) and not self._done():
                with suppress(PySparkException):  # what ended it is told below
                    self.query.awaitTermination(LOOK_EVERY)  # type: ignore[arg-type]
                self._check_paused()
        except BaseException:
            self.stop()
            raise
        self.stop()
        self._raise()
        return self.totals

    def _check_paused(self) -> None:
        if self._reach.transport.ask(GetQueue(queue=self._plan.queue)).paused:
            raise Conflict(f"the queue {self._plan.queue!r} is paused; resume it to finish")

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until it is stopped, or fails: then the error is raised."""
        try:
            if not self.query.awaitTermination(timeout) and self.query.isActive:  # type: ignore[arg-type]
                return False
        except PySparkException:
            # It has failed, and is told so before it has ended.
            with suppress(PySparkException):
                self.query.awaitTermination()
        self._close()
        self._raise()
        return True

    def stop(self) -> None:
        """Let the batch under way finish, stop, and give back what was claimed for the next one."""
        if self.query.isActive:
            finished = self._at_work.acquire(timeout=STOP_PATIENCE)
            self._stopping = True
            if finished:
                self._at_work.release()
            self.query.stop()
        self._close()

    def _close(self) -> None:
        if not self._closed.acquire(blocking=False):
            return
        try:
            if not self._succeeded():
                self._give_back()
            self._show(done=True)
        finally:
            self._shown.close()
            self._reach.close()

    def _succeeded(self) -> bool:
        """Whether another run is at work on our checkpoint: it has our name, and what is held is its."""
        if self._query is None or self._spark is None:
            return False
        # We are listed ourselves for a moment after our end.
        mine = self._query.id, self._query.runId
        return any(one.id == mine[0] and one.runId != mine[1] for one in self._spark.streams.active)

    def _give_back(self) -> None:
        """Claims of ours that are still held: a release costs nothing, and nobody has to wait for them."""
        rows: list[LeaseRow] = self._reach.transport.ask(
            ListLeases(queue=self._plan.queue, group=self._plan.group, key_prefix=f"{self._who.claim_name}/")
        )
        mine = [row.lease_id for row in rows if row.owner.endswith(f":{self._who.nonce}")]
        if mine:
            self._reach.transport.send(giving_back(mine))

    def _raise(self) -> None:
        """What went wrong, in one line."""
        problem = self._problem or (None if self._stopping else self.query.exception())
        if problem is None:
            return
        if isinstance(problem, AckwiseError):
            raise problem
        raise PipelineFailed(f"the pipeline failed: {line_of(problem) or reason(problem)}") from problem
