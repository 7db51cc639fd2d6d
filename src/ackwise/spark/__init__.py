"""Spark: pipelines that settle each record by itself, the Spark session, the source, the sinks and the jobs.

The import of this package does not load Spark. The first use of one of its names does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ackwise.core.errors import MissingExtra
from ackwise.core.extras import missing, missing_package

if TYPE_CHECKING:
    from ackwise.spark.pipelines import expect, pipeline
    from ackwise.spark.spark_session import session

__all__ = ["expect", "pipeline", "session"]

_HOMES = {
    "session": "ackwise.spark.spark_session",
    "pipeline": "ackwise.spark.pipelines",
    "expect": "ackwise.spark.pipelines",
}


class SparkMissing(MissingExtra):
    """Spark, or the Java that it needs, is not installed; install it with: pip install 'ackwise[spark]'"""

    code = "spark_missing"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ImportError as problem:
        package = missing_package(problem, "spark")
        if package is None:
            raise
        raise SparkMissing(str(missing("spark", f"ackwise.spark.{name}", package))) from None
