"""Builder of pipelines: `pipeline(spark, url).consume(…).map(…).produce(…).run()`."""

from __future__ import annotations

import inspect
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ackwise.client.options import as_backoff, group_policy
from ackwise.core import validation
from ackwise.core.errors import BadInput
from ackwise.core.policy import Backoff, GroupPolicy
from ackwise.core.validation import Seconds
from ackwise.spark.connections import absolute
from ackwise.spark.pipelines.plan import PIPELINE_POLICY, MapStep, PipelinePlan, TransformStep, Write
from ackwise.spark.pipelines.query import RunningPipeline, Totals, claim_name_of
from ackwise.spark.source.options import LEASE_SECONDS, ROWS_PER_TRIGGER
from ackwise.spark.types import from_ddl

Frames = Callable[[DataFrame], DataFrame]


def pipeline(spark: SparkSession, url: str) -> NewPipeline:
    """Begin a pipeline on a store or a server.

    Usage::

        pipeline(spark, url).consume("orders", "billing").map(bill, returns="order long, cents long")\\
            .produce("invoices").run()
    """
    if not isinstance(url, str):
        raise BadInput(f"the url must be a string, not {type(url).__name__}")
    return NewPipeline(spark, absolute(url))


class NewPipeline:
    """Pipeline before `consume`: it has a store and no queue yet."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._spark, self._url = spark, url

    def consume(
        self,
        queue: str,
        group: str,
        *,
        schema: str | StructType | None = None,
        start: str = "all",
        max_rows: int = ROWS_PER_TRIGGER,
        lease: Seconds = LEASE_SECONDS,
        claim_name: str | None = None,
        max_partitions: int | None = None,
        retry_limit: int | msgspec.UnsetType | None = msgspec.UNSET,
        backoff: Backoff | Iterable[Seconds] | msgspec.UnsetType = msgspec.UNSET,
    ) -> Pipeline:
        """Choose the queue and group.

        With a `schema` a payload that does not fit is dead-lettered, and `.transform` gets the schema's columns.

        `start` is where a new group begins (`all`, `new` or an ISO time), `max_rows` how many records a batch has.
        `retry_limit` and `backoff` (a `Backoff` or a list of seconds) are the group's policy. A new group has 3 and
        (0.5, 2) by default.
        """
        validation.name(queue, "queue")
        validation.name(group, "group")
        validation.count(max_rows, "max_rows", most=validation.MAX_BATCH)
        if claim_name is not None:
            validation.name(claim_name, "claim_name")
        if max_partitions is not None:
            validation.count(max_partitions, "max_partitions")
        plan = PipelinePlan(
            url=self._url,
            queue=queue,
            group=group,
            schema=None if schema is None else from_ddl(schema, "schema"),
            start=start,
            max_rows=max_rows,
            lease=validation.lease_micros(lease),
            claim_name=claim_name,
            max_partitions=max_partitions,
            policy=_policy(retry_limit, backoff),
        )
        return Pipeline(self._spark, plan)


def _policy(
    retry_limit: int | msgspec.UnsetType | None, backoff: Backoff | Iterable[Seconds] | msgspec.UnsetType
) -> GroupPolicy | None:
    """The group's policy: the given fields, and the defaults of a pipeline. None if no field is given."""
    waits = backoff if backoff is msgspec.UNSET else as_backoff(backoff)
    given = group_policy(retry_limit, waits)
    if given is None:
        return None
    fields = {name: value for name, value in msgspec.structs.asdict(given).items() if value is not msgspec.UNSET}
    return msgspec.structs.replace(PIPELINE_POLICY, **fields)


class Pipeline:
    """Pipeline after `consume`: add `map` or `transform`, then `produce` or `write` or both, then call `run`."""

    def __init__(self, spark: SparkSession, plan: PipelinePlan) -> None:
        self._spark, self._plan = spark, plan

    def _with(self, **changes: Any) -> Pipeline:
        return Pipeline(self._spark, msgspec.structs.replace(self._plan, **changes))

    def _check_first_step(self, step: str) -> None:
        if self._plan.step is not None:
            raise BadInput(f"a pipeline has one .map or .transform; put the second {step} into a pipeline of its own")

    def map(
        self,
        function: Callable[..., Any],
        returns: str | StructType | None = None,
        *,
        timeout: Seconds | None = None,
    ) -> Pipeline:
        """Call a plain function per record, with the payload. A function with two parameters also gets the `Record`.

        The function returns the output: a dict, tuple or dataclass that fits `returns`. A list is several outputs,
        None is no output. An exception is a retry, `Reject` a dead letter, `Retry(delay=…)` a later retry.
        The function runs in a process of its own. A record that kills this process, or takes longer than `timeout`,
        is retried. Other records are not affected.
        """
        self._check_first_step(".map")
        if not callable(function):
            raise BadInput(f".map takes a function, not {type(function).__name__}")
        if inspect.iscoroutinefunction(function):
            raise BadInput(".map takes a plain function; an async one would never be awaited")
        seconds = None if timeout is None else validation.micros(timeout, "timeout") / validation.MICROS
        kind = None if returns is None else from_ddl(returns, "returns")
        return self._with(step=MapStep(function, kind, seconds))

    def transform(self, *functions: Frames) -> Pipeline:
        """Apply functions from DataFrame to DataFrame in order. `expect(condition, reason)` makes one.

        To `produce` rows, keep the column `delivery_id`. A record without rows in the result is acked.
        """
        self._check_first_step(".transform")
        if not functions or not all(map(callable, functions)):
            raise BadInput(".transform takes functions from a DataFrame to a DataFrame")
        return self._with(step=TransformStep(functions))

    def produce(self, queue: str) -> Pipeline:
        """Push the outputs to `queue`. Each record's outputs commit with its settlement and keep its partition."""
        return self._with(produce=validation.name(queue, "queue"))

    def write(self, format: str, path: str | None = None, **options: str) -> Pipeline:
        """Write the outputs with Spark before the records are settled.

        Files go to `path/batch=…`, one folder per batch. A repeated batch does not overwrite a complete folder.
        """
        return self._with(write=Write(format, path, dict(options)))

    def start(self, checkpoint: str, *, progress: bool = False, trigger: str = "0 seconds") -> RunningPipeline:
        """Run until stopped. The checkpoint is the query's identity: a second start from it takes over at once."""
        if not checkpoint:
            raise BadInput("start(checkpoint): pass the folder where Spark stores the query's offsets")
        return RunningPipeline.begin(self._spark, self._plan, checkpoint, progress=progress, trigger=trigger)

    def run(
        self, checkpoint: str | None = None, *, progress: bool = False, stop: threading.Event | None = None
    ) -> Totals:
        """Run until nothing is left: the group's lag is 0, and no retry or scheduled message waits for its time.

        To end it earlier, set `stop` from another thread or a signal handler. It ends after the current batch.
        """
        if self._plan.produce == self._plan.queue:
            raise BadInput(f"run would never end: it produces into {self._plan.queue!r}, which it consumes; use start")
        if checkpoint is not None:
            return RunningPipeline.to_the_end(self._spark, self._plan, checkpoint, progress=progress, stop=stop)
        with tempfile.TemporaryDirectory(prefix="ackwise-run-") as folder:
            # The folder is deleted at the end, so no later run can take over these claims: they get their own name.
            plan = self._plan
            if plan.claim_name is None:
                plan = msgspec.structs.replace(
                    plan, claim_name=f"{claim_name_of(plan.group)[:200]}.run-{uuid.uuid4().hex[:8]}"
                )
            return RunningPipeline.to_the_end(self._spark, plan, folder, progress=progress, stop=stop)
