"""The one Spark session of a process, for pages that use it."""

from tests.spark.conftest import spark

__all__ = ["spark"]
