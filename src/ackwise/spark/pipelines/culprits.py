"""Which records break a transform. Spark names no row when an expression or a UDF fails, so they are searched for.

Halves of the batch are tried until the culprits stand alone. They are retried or dead-lettered like any record that
fails, and the others go on without them.
"""

from __future__ import annotations

from collections.abc import Callable

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ackwise.core.errors import AckwiseError
from ackwise.spark.failing import line_of, reason

MOST = 50
"""More culprits than this in one batch are not poison but a mistake in the transform: then it fails as a whole."""


class TransformFailed(AckwiseError):
    """The transform fails for too many records to blame the records."""

    code = "transform_failed"


BROKEN = (PySparkException, Py4JJavaError)


def is_about_rows(problem: Exception) -> bool:
    """Whether other rows might not have failed."""
    return not isinstance(problem, AnalysisException | ParseException) and line_of(problem) is None


def search(frame: DataFrame, attempt: Callable[[DataFrame], None]) -> dict[str, str]:
    """The deliveries to blame, with what was said of each. `attempt` evaluates what the transform makes of a part."""
    deliveries = sorted(row[0] for row in frame.select("delivery_id").collect())
    found: dict[str, str] = {}

    def problem_in(lo: int, hi: int) -> Exception | None:
        part = frame.filter(f.col("delivery_id").between(deliveries[lo], deliveries[hi - 1]))
        try:
            attempt(part)
        except BROKEN as problem:
            if not is_about_rows(problem):
                raise
            return problem
        return None

    # (lo, hi) that are known to fail; a half is tried only when its sibling does not tell already.
    failing: list[tuple[int, int, Exception]] = []
    whole = problem_in(0, len(deliveries)) if deliveries else None
    if whole is not None:
        failing.append((0, len(deliveries), whole))
    while failing:
        lo, hi, problem = failing.pop()
        if hi - lo == 1:
            found[deliveries[lo]] = reason(problem)
            if len(found) > MOST:
                raise TransformFailed(
                    f"the transform fails for more than {MOST} records of one batch, such as: {reason(problem)}"
                )
            continue
        middle = (lo + hi) // 2
        left = problem_in(lo, middle)
        right = problem_in(middle, hi)
        failing += [(a, b, why) for a, b, why in ((lo, middle, left), (middle, hi, right)) if why is not None]
    return found
