"""Finds the records that break a transform.

It bisects the batch: it tries each half of a failing part until only single records fail. The driver retries or
dead-letters these records and runs the batch again without them.
"""

from __future__ import annotations

from collections.abc import Callable

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ackwise.core.errors import AckwiseError
from ackwise.spark.errors import marked_line, short_reason

MAX_FAILING = 50
"""With more failing records than this in one batch, the transform itself is wrong, and the pipeline fails."""


class TransformFailed(AckwiseError):
    """The transform fails for too many records to blame the records."""

    code = "transform_failed"


TRANSFORM_ERRORS = (PySparkException, Py4JJavaError)


def is_about_rows(problem: Exception) -> bool:
    """Whether the error depends on the rows, and not on the plan or on an error of Ackwise."""
    return not isinstance(problem, AnalysisException | ParseException) and marked_line(problem) is None


def find_failing(frame: DataFrame, attempt: Callable[[DataFrame], None]) -> dict[str, str]:
    """Find the failing deliveries and the error of each. `attempt` runs the transform on a part of the batch."""
    deliveries = sorted(row[0] for row in frame.select("delivery_id").collect())
    failing_deliveries: dict[str, str] = {}

    def problem_in(lo: int, hi: int) -> Exception | None:
        part = frame.filter(f.col("delivery_id").between(deliveries[lo], deliveries[hi - 1]))
        try:
            attempt(part)
        except TRANSFORM_ERRORS as problem:
            if not is_about_rows(problem):
                raise
            return problem
        return None

    # Parts (lo, hi) of the batch that are known to fail, each with its error.
    failing: list[tuple[int, int, Exception]] = []
    whole = problem_in(0, len(deliveries)) if deliveries else None
    if whole is not None:
        failing.append((0, len(deliveries), whole))
    while failing:
        lo, hi, problem = failing.pop()
        if hi - lo == 1:
            failing_deliveries[deliveries[lo]] = short_reason(problem)
            if len(failing_deliveries) > MAX_FAILING:
                example = short_reason(problem)
                raise TransformFailed(
                    f"the transform fails for more than {MAX_FAILING} records of one batch, such as: {example}"
                )
            continue
        middle = (lo + hi) // 2
        left = problem_in(lo, middle)
        right = problem_in(middle, hi)
        failing += [(a, b, why) for a, b, why in ((lo, middle, left), (middle, hi, right)) if why is not None]
    return failing_deliveries
