"""What Spark refuses, in one line: no stack of Java's, and about what was asked."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from ackwise.core.errors import AckwiseError, BadInput
from ackwise.spark.failing import line_of, reason

_CODE = re.compile(r"(.*) \[(\w+)\]")


@contextlib.contextmanager
def told(what: str | None = None) -> Iterator[None]:
    """What Spark does not understand or cannot do becomes one line: about `what`, if that is to blame."""
    try:
        yield
    except (PySparkException, Py4JError) as problem:
        ours = _CODE.fullmatch(line_of(problem) or "")
        if ours is not None:
            raise (BadInput if ours[2] in _misuses() else AckwiseError)(ours[1]) from None
        if what is not None:
            raise BadInput(f"{what}: {reason(problem)}") from None
        raise AckwiseError(f"Spark: {reason(problem)}") from None


def _misuses() -> set[str]:
    """The codes of the errors that are the caller's."""
    found, left = set(), [BadInput]
    while left:
        kind = left.pop()
        found.add(kind.code)
        left += kind.__subclasses__()
    return found
