"""A running pipeline: starts Spark's streaming query, waits for it and stops it."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ackwise.core.commands import ConfigureGroup, release_command
from ackwise.core.errors import AckwiseError, Conflict
from ackwise.core.extras import needed
from ackwise.core.pipelines import LONGEST_ERROR, PipelineReport
from ackwise.core.queries import GetQueue, ListGroups, ListLeases, QueueStats
from ackwise.core.validation import MAX_NAME, MICROS
from ackwise.spark.connections import StoreConnection, open_connection
from ackwise.spark.errors import marked_line, short_reason, translate_spark_errors
from ackwise.spark.hadoop_files import HadoopFolder
from ackwise.spark.pipelines.batch_driver import BatchDriver
from ackwise.spark.pipelines.checkpoints import Identity, identity
from ackwise.spark.pipelines.heartbeat import PipelineHeartbeat, pipeline_id
from ackwise.spark.pipelines.plan import PIPELINE_POLICY, PipelinePlan
from ackwise.spark.source.options import start_at
from ackwise.spark.source.schemas import RANGES

if TYPE_CHECKING:
    from ackwise.spark.progress import StreamProgress

LOOK_EVERY = 0.2
STOP_PATIENCE = 30.0


def claim_name_of(group: str) -> str:
    """Default claim name of a group. A claim name has no slash."""
    return group.replace("/", ".")


def _configure_group(connection: StoreConnection, plan: PipelinePlan) -> None:
    """Create the group, or give it the policy that the caller chose. An existing group keeps its policy otherwise."""
    policy = plan.policy
    if policy is None and not connection.transport.ask(ListGroups(queue=plan.queue, group=plan.group)):
        policy = PIPELINE_POLICY
    start = start_at(plan.start, "start")
    connection.transport.send(ConfigureGroup(queue=plan.queue, group=plan.group, start=start, policy=policy))


class PipelineFailed(AckwiseError):
    """The pipeline stopped because of an error. Settled records stay settled."""

    code = "pipeline_failed"


class Totals(msgspec.Struct):
    """Counts of a run. A record that was retried twice and then acked counts twice as retried and once as acked."""

    batches: int = 0
    rows: int = 0
    """Deliveries that batches processed."""
    acked: int = 0
    filtered: int = 0
    """Acked records for which `.transform` returned no row."""
    retried: int = 0
    dead: int = 0
    stale: int = 0
    """Settlements after the lease had ended. These records are delivered again."""
    already: int = 0
    """Settlements that an earlier attempt had made."""
    outputs: int = 0

    def add(self, counts: Counter[str]) -> None:
        self.batches += 1
        for name in ("rows", "acked", "filtered", "retried", "dead", "stale", "already", "outputs"):
            setattr(self, name, getattr(self, name) + counts[name])
        self.stale += counts["unknown"]

    def outcomes(self) -> dict[str, int]:
        return {"acked": self.acked, "retried": self.retried, "dead": self.dead, "stale": self.stale}


class RunningPipeline:
    """Handle of a started pipeline. Its `totals` grow with every batch."""

    def __init__(
        self,
        plan: PipelinePlan,
        connection: StoreConnection,
        own_identity: Identity,
        *,
        checkpoint: str,
        progress: StreamProgress | None,
    ) -> None:
        self._plan, self._connection, self._identity, self._progress = plan, connection, own_identity, progress
        self._checkpoint = checkpoint
        self._batches = BatchDriver(plan, connection.transport, own_identity.nonce[:8])
        name = pipeline_id(plan.queue, plan.group, own_identity.claim_name)
        self._heartbeat = PipelineHeartbeat(connection.transport, name, plan.queue, plan.group)
        self._application = PipelineReport(host=socket.gethostname()[:MAX_NAME])
        """What stays the same in each report."""
        self.totals = Totals()
        self._problem: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._spark: SparkSession | None = None
        self._closed = threading.Lock()
        self._batch_lock = threading.Lock()
        self._stopping = False
        self._display = ExitStack()

    @classmethod
    def begin(
        cls, spark: SparkSession, plan: PipelinePlan, checkpoint: str, *, progress: bool, trigger: str
    ) -> RunningPipeline:
        running = cls._ready(spark, plan, checkpoint, progress=progress)
        running._start(spark, trigger)
        return running

    @classmethod
    def to_the_end(
        cls, spark: SparkSession, plan: PipelinePlan, checkpoint: str, *, progress: bool, stop: threading.Event | None
    ) -> Totals:
        """Run until no record is left or `stop` is set. If there is no record, it does not start Spark's query."""
        running = cls._ready(spark, plan, checkpoint, progress=progress)
        try:
            done = running._done()
        except BaseException:
            running._connection.close()
            raise
        if done:
            running._close()
            return running.totals
        running._start(spark, "0 seconds")
        return running._until_done(stop)

    @classmethod
    def _ready(cls, spark: SparkSession, plan: PipelinePlan, checkpoint: str, *, progress: bool) -> RunningPipeline:
        from ackwise.spark.progress import StreamProgress

        connection = open_connection(plan.url, duties=True)
        try:
            with translate_spark_errors(f"the checkpoint {checkpoint}"):
                folder = HadoopFolder(spark, checkpoint)
            _configure_group(connection, plan)
            own_identity = identity(folder, plan.queue, plan.group, plan.claim_name or claim_name_of(plan.group))
            shown = StreamProgress(f"{plan.queue} → {plan.group}") if progress else None
            return cls(plan, connection, own_identity, checkpoint=folder.url, progress=shown)
        except BaseException:
            connection.close()
            raise

    def _start(self, spark: SparkSession, trigger: str) -> None:
        try:
            with translate_spark_errors():
                self._query = self._started(spark, trigger)
                self._spark = spark
                context = spark.sparkContext
                self._application.application_id = context.applicationId[:MAX_NAME]
                self._application.ui_url = context.uiWebUrl or ""
                self._heartbeat.start(self._report)
        except BaseException:
            self._display.close()
            self._connection.close()
            raise

    def _started(self, spark: SparkSession, trigger: str) -> StreamingQuery:
        plan = self._plan
        options = {
            "url": plan.url,
            "queue": plan.queue,
            "group": plan.group,
            "claimName": self._identity.claim_name,
            "nonce": self._identity.nonce,
            "startingPosition": plan.start,
            "maxRowsPerTrigger": str(plan.max_rows),
            "leaseSeconds": str(plan.lease / MICROS),
            "maxPartitions": str(plan.max_partitions or spark.sparkContext.defaultParallelism),
            # A batch settles every record that it processed. Release the others.
            "unsettled": "release",
        }
        reader = spark.readStream.format("ackwise").options(**options)
        if self._batches.reads:
            reader = reader.schema(RANGES)
        elif plan.schema is not None:
            reader = reader.option("payloadSchema", plan.schema.json())
        frame = reader.load()
        if self._progress is not None:
            self._display.enter_context(self._progress)
        writer = frame.writeStream.foreachBatch(self._work).option("checkpointLocation", self._checkpoint)
        return writer.trigger(processingTime=trigger).start()

    @property
    def query(self) -> StreamingQuery:
        """Spark's own handle."""
        assert self._query is not None
        return self._query

    def _work(self, batch: DataFrame, number: int) -> None:
        with self._batch_lock:
            if self._stopping:
                return  # `_close` releases its records
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
        with suppress(AckwiseError):  # a failed progress report must not stop the query
            self._progress.update(self.totals.rows, self.totals.outcomes(), self.lag(), done=done)

    def metrics(self) -> bytes:
        """Counts of this run, in the text format of Prometheus."""
        with needed("cli", "the metrics of a pipeline"):
            from ackwise.observability.handler_metrics import pipeline_exposition
        totals, plan = self.totals, self._plan
        return pipeline_exposition(plan.queue, plan.group, totals.outcomes(), batches=totals.batches, rows=totals.rows)

    def lag(self) -> int:
        """Records that the group has yet to finish."""
        groups = self._connection.transport.ask(ListGroups(queue=self._plan.queue, group=self._plan.group))
        return sum(group.lag for group in groups)

    def _done(self) -> bool:
        """Whether no record is unfinished and no message is scheduled."""
        if self.lag():
            return False
        stats = self._connection.transport.ask(QueueStats(queue=self._plan.queue))
        return not stats.scheduled and not self.lag()

    def _until_done(self, stop: threading.Event | None) -> Totals:
        """Wait until no record is left or `stop` is set, then stop the query."""
        try:
            while self.query.isActive and not (stop is not None and stop.is_set()) and not self._done():
                with suppress(PySparkException):  # `_raise` reports the error
                    self.query.awaitTermination(LOOK_EVERY)  # type: ignore[arg-type]
                self._check_paused()
        except BaseException:
            self.stop()
            raise
        self.stop()
        self._raise()
        return self.totals

    def _check_paused(self) -> None:
        if self._connection.transport.ask(GetQueue(queue=self._plan.queue)).paused:
            raise Conflict(
                f"the queue {self._plan.queue!r} is paused; resume it with: ackwise queue resume {self._plan.queue}"
            )

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query stops. If it failed, raise its error. Returns False after `timeout` seconds."""
        try:
            if not self.query.awaitTermination(timeout) and self.query.isActive:  # type: ignore[arg-type]
                return False
        except PySparkException:
            # Spark raises before the query has ended.
            with suppress(PySparkException):
                self.query.awaitTermination()
        self._close()
        self._raise()
        return True

    def stop(self) -> None:
        """Wait for the current batch, stop the query, and release the messages claimed for the next batch."""
        if self.query.isActive:
            finished = self._batch_lock.acquire(timeout=STOP_PATIENCE)
            self._stopping = True
            if finished:
                self._batch_lock.release()
            self.query.stop()
        self._close()

    def _close(self) -> None:
        if not self._closed.acquire(blocking=False):
            return
        taken_over = True
        try:
            taken_over = self._taken_over()
            if not taken_over:
                self._release_claims()
            self._show(done=True)
        finally:
            self._heartbeat.stop(None if taken_over else self._last_report)
            self._display.close()
            self._connection.close()

    def _report(self) -> PipelineReport:
        """The heartbeat of the running pipeline."""
        totals = self.totals
        counts = {name: getattr(totals, name) for name in ("rows", "acked", "retried", "dead", "outputs", "batches")}
        return msgspec.structs.replace(self._application, lag=self.lag(), **counts)

    def _last_report(self) -> PipelineReport:
        """The report of the end: stopped, or failed with the error."""
        problem = self._failure()
        if problem is None:
            return msgspec.structs.replace(self._report(), state="stopped")
        return msgspec.structs.replace(
            self._report(),
            state="failed",
            last_error=_one_line(problem)[:LONGEST_ERROR],
            last_error_at=time.time_ns() // 1000,
        )

    def _taken_over(self) -> bool:
        """Whether another run of the same checkpoint has taken over. It owns the claims then."""
        if self._query is None or self._spark is None:
            return False
        # Spark lists this run for a moment after its end.
        own = self._query
        return any(query.id == own.id and query.runId != own.runId for query in self._spark.streams.active)

    def _release_claims(self) -> None:
        """Release the claims that this query still holds, so that other consumers get the messages now."""
        rows = self._connection.transport.ask(
            ListLeases(queue=self._plan.queue, group=self._plan.group, key_prefix=f"{self._identity.claim_name}/")
        )
        held = [row.lease_id for row in rows if row.owner.endswith(f":{self._identity.nonce}")]
        if held:
            self._connection.transport.send(release_command(held))

    def _failure(self) -> BaseException | None:
        """The error that ended the query. A query that was stopped has none."""
        if self._problem is not None or self._stopping or self._query is None:
            return self._problem
        return self._query.exception()

    def _raise(self) -> None:
        """Raise the error that ended the query, in one line."""
        problem = self._failure()
        if problem is None:
            return
        if isinstance(problem, AckwiseError):
            raise problem
        raise PipelineFailed(f"the pipeline failed: {_one_line(problem)}") from problem


def _one_line(problem: BaseException) -> str:
    return marked_line(problem) or short_reason(problem)
