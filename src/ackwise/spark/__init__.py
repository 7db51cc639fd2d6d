"""Spark: pipelines in which every record is settled by itself, the session they run in, and the jobs around them.

Importing this does not load Spark; asking for one of its names does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ackwise.core.errors import AckwiseError

if TYPE_CHECKING:
    from ackwise.spark.pipelines import expect, pipeline
    from ackwise.spark.sessions import session

__all__ = ["expect", "pipeline", "session"]

_HOMES = {
    "session": "ackwise.spark.sessions",
    "pipeline": "ackwise.spark.pipelines",
    "expect": "ackwise.spark.pipelines",
}


class SparkMissing(AckwiseError):
    """Spark is an extra: pip install 'ackwise[spark]'."""

    code = "spark_missing"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and problem.name.partition(".")[0] in ("pyspark", "pyarrow", "numpy", "pandas"):
            raise SparkMissing from None
        raise
