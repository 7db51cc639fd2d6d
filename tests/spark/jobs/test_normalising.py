"""Which messages are the same error."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ackwise.spark.jobs.dead_letter_report import normalised
from tests.core.kinds_of_errors import TABLE


def test_normalised_error_leaves_out_variable_parts(spark: SparkSession) -> None:
    errors = spark.createDataFrame([(error,) for error in TABLE], "error string")
    found = {row.error: row.said for row in errors.select("error", normalised(errors.error).alias("said")).collect()}
    assert found == TABLE
