"""How a pipeline is put together. Every step answers a new one, and nothing happens before `start` or `run`."""

from __future__ import annotations

import inspect
import tempfile
import threading
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ackwise.core import limits
from ackwise.core.errors import BadInput
from ackwise.core.limits import Seconds
from ackwise.spark.pipelines.plan import Mapped, Plan, Transformed, Write
from ackwise.spark.pipelines.running import Running, Totals, claim_name_of
from ackwise.spark.reach import absolute
from ackwise.spark.source.options import LEASE_SECONDS, ROWS_PER_TRIGGER
from ackwise.spark.types import from_ddl

Frames = Callable[[DataFrame], DataFrame]


def pipeline(spark: SparkSession, url: str) -> Consuming:
    """Begin a pipeline on a store or a server.

    Usage::

        pipeline(spark, url).consume("orders", "billing").map(bill, returns="order long, cents long")\\
            .produce("invoices").run()
    """
    if not isinstance(url, str):
        raise BadInput(f"the url must be a string, not {type(url).__name__}")
    return Consuming(spark, absolute(url))


class Consuming:
    """A pipeline that does not know yet what it reads."""

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
    ) -> Pipeline:
        """Which records. With a `schema` a payload that does not fit is dead-lettered, and a transform has its columns.

        `start` is where a new group begins (`all`, `new` or an ISO time), `max_rows` how many records a batch has.
        """
        limits.name(queue, "queue")
        limits.name(group, "group")
        limits.count(max_rows, "max_rows", most=limits.MAX_BATCH)
        if claim_name is not None:
            limits.name(claim_name, "claim_name")
        if max_partitions is not None:
            limits.count(max_partitions, "max_partitions")
        plan = Plan(
            url=self._url,
            queue=queue,
            group=group,
            schema=None if schema is None else from_ddl(schema, "schema"),
            start=start,
            max_rows=max_rows,
            lease=limits.lease_micros(lease),
            claim_name=claim_name,
            max_partitions=max_partitions,
        )
        return Pipeline(self._spark, plan)


class Pipeline:
    """Records on their way: `map` or `transform` them, `produce` and/or `write` what comes out, then `run` it."""

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        self._spark, self._plan = spark, plan

    def _with(self, **changes: Any) -> Pipeline:
        return Pipeline(self._spark, msgspec.structs.replace(self._plan, **changes))

    def _once(self, step: str) -> None:
        if self._plan.step is not None:
            raise BadInput(f"a pipeline has one .map or .transform; put the second {step} into a pipeline of its own")

    def map(
        self,
        function: Callable[..., Any],
        returns: str | StructType | None = None,
        *,
        timeout: Seconds | None = None,
    ) -> Pipeline:
        """A plain function per record: it takes the payload (and, if it takes two arguments, the `Record`).

        What it returns is the output: a dict, tuple or dataclass that fits `returns`; a list is several, None is none.
        What it raises is a retry, `Reject` a dead letter, `Retry(delay=…)` a later retry. It runs in a process of its
        own: a record that kills that, or takes longer than `timeout`, is retried and the others are not disturbed.
        """
        self._once(".map")
        if not callable(function):
            raise BadInput(f".map takes a function, not {type(function).__name__}")
        if inspect.iscoroutinefunction(function):
            raise BadInput(".map takes a plain function; an async one would never be awaited")
        seconds = None if timeout is None else limits.micros(timeout, "timeout") / limits.MICROS
        kind = None if returns is None else from_ddl(returns, "returns")
        return self._with(step=Mapped(function, kind, seconds))

    def transform(self, *functions: Frames) -> Pipeline:
        """DataFrame logic: each function takes a DataFrame and answers one; `expect(condition, reason)` is one, too.

        Rows keep `delivery_id` to be produced. What is filtered out on the way is acked.
        """
        self._once(".transform")
        if not functions or not all(map(callable, functions)):
            raise BadInput(".transform takes functions from a DataFrame to a DataFrame")
        return self._with(step=Transformed(functions))

    def produce(self, queue: str) -> Pipeline:
        """Push what comes out, each record's outputs in one step with its settlement. Partitions are kept."""
        return self._with(produce=limits.name(queue, "queue"))

    def write(self, format: str, path: str | None = None, **options: str) -> Pipeline:
        """Write what comes out with Spark, before the records are settled. Files go to `path/batch=…`, a folder per
        batch; one that was written whole is not written over when its batch is run again."""
        return self._with(write=Write(format, path, dict(options)))

    def start(self, checkpoint: str, *, progress: bool = False, trigger: str = "0 seconds") -> Running:
        """Run until stopped. The checkpoint is the query's identity: whoever starts from it takes over at once."""
        if not checkpoint:
            raise BadInput("start(checkpoint): name the folder in which Spark keeps the query's place")
        return Running.begin(self._spark, self._plan, checkpoint, progress=progress, trigger=trigger)

    def run(
        self, checkpoint: str | None = None, *, progress: bool = False, stop: threading.Event | None = None
    ) -> Totals:
        """Run until nothing is left: the group's lag is 0, and no retry or scheduled message waits for its time.

        Another thread or a signal handler may set `stop`: then it ends after the batch under way.
        """
        if self._plan.produce == self._plan.queue:
            raise BadInput(f"run would never end: it produces into {self._plan.queue!r}, which it consumes; use start")
        if checkpoint is not None:
            return Running.to_the_end(self._spark, self._plan, checkpoint, progress=progress, stop=stop)
        with tempfile.TemporaryDirectory(prefix="ackwise-run-") as folder:
            # Nobody can take over from a folder that is gone, so nobody shall have to: the claims have their own name.
            plan = self._plan
            if plan.claim_name is None:
                plan = msgspec.structs.replace(
                    plan, claim_name=f"{claim_name_of(plan.group)[:200]}.run-{uuid.uuid4().hex[:8]}"
                )
            return Running.to_the_end(self._spark, plan, folder, progress=progress, stop=stop)
