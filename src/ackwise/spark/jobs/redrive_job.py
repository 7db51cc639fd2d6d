"""Job `redrive`: puts dead letters back, chosen by Spark SQL, at a limited rate."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwise.connect import connect
from ackwise.spark.errors import translate_spark_errors
from ackwise.spark.jobs.dead_letter_report import counted
from ackwise.spark.jobs.tables import table
from ackwise.spark.rate_limit import Progress, RateLimit, put_back


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
    """Put dead letters back at their old position for their group, in their old order. Rows are `id, result`.

    `where` is Spark SQL over the columns of `dead_letters`, such as `error_type = 'TimeoutError' AND retry_count < 5`.
    The job selects all dead letters before it puts the first one back. `rate` is the maximum per second. With `dry_run`
    it only counts: rows are `queue, group, reason, error, count`.
    """
    pace = RateLimit(rate)
    chosen = DeadLetterSelection(spark, url, where, queue=queue, group=group)
    if dry_run:
        return chosen.counted()
    ids = chosen.ids()
    with connect(url) as connection:
        results = put_back(connection, ids, pace, progress)
    return spark.createDataFrame(list(results.items()), "id string, result string")


class DeadLetterSelection:
    """Dead letters that match `where`. Invalid Spark SQL raises `BadInput`."""

    def __init__(
        self, spark: SparkSession, url: str, where: str | None, *, queue: str | None = None, group: str | None = None
    ) -> None:
        self._input_name = None if where is None else f"--where {where!r:.200}"
        self._letters = table(spark, url, "dead_letters", queue=queue, group=group)
        if where is not None:
            with translate_spark_errors(self._input_name):
                self._letters = self._letters.filter(F.expr(where))

    def counted(self) -> DataFrame:
        """Counts by queue, group, reason and error."""
        with translate_spark_errors(self._input_name):
            return counted(self._letters).select("queue", "group", "reason", "error", "count").localCheckpoint()

    def ids(self) -> list[str]:
        """Ids in the order of the pushes."""
        with translate_spark_errors(self._input_name):
            rows = self._letters.orderBy("queue", "consumer_group", "partition_id", "seq").select("id").collect()
        return [row[0] for row in rows]
