"""`redrive`: dead letters go back to their group, chosen by a Spark SQL expression."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwise.connect import connect
from ackwise.spark.jobs.dead_letters import counted
from ackwise.spark.jobs.tables import table
from ackwise.spark.pacing import Pace, Progress, put_back
from ackwise.spark.refusals import told


def redrive(
    spark: SparkSession,
    url: str,
    where: str | None = None,
    *,
    queue: str | None = None,
    group: str | None = None,
    dry_run: bool = False,
    rate: float | None = None,
    progress: Progress | None = None,
) -> DataFrame:
    """Put dead letters back at their old place for their own group, in their old order; rows are `id, result`.

    `where` is Spark SQL over the columns of `dead_letters`: `error_type = 'TimeoutError' AND retry_count < 5`. All are
    chosen before the first goes back. `rate` is how many per second at most. With `dry_run` nothing goes back, and the
    rows are `queue, group, reason, error, count`.
    """
    pace = Pace(rate)
    chosen = Chosen(spark, url, where, queue=queue, group=group)
    if dry_run:
        return chosen.counted()
    ids = chosen.ids()
    with connect(url) as connection:
        results = put_back(connection, ids, pace, progress)
    return spark.createDataFrame(list(results.items()), "id string, result string")


class Chosen:
    """The dead letters that an expression is true of. An expression that Spark does not understand is refused here."""

    def __init__(
        self, spark: SparkSession, url: str, where: str | None, *, queue: str | None = None, group: str | None = None
    ) -> None:
        self._blamed = None if where is None else f"--where {where!r:.200}"
        self._letters = table(spark, url, "dead_letters", queue=queue, group=group)
        if where is not None:
            with told(self._blamed):
                self._letters = self._letters.filter(F.expr(where))

    def counted(self) -> DataFrame:
        """How many of which kind."""
        with told(self._blamed):
            return counted(self._letters).select("queue", "group", "reason", "error", "count").localCheckpoint()

    def ids(self) -> list[str]:
        """In the order in which they were pushed."""
        with told(self._blamed):
            rows = self._letters.orderBy("queue", "consumer_group", "partition_id", "seq").select("id").collect()
        return [row[0] for row in rows]
