"""One-line errors across the JVM.

Spark shows a Python error as a page of Java and Python tracebacks. Ackwise puts a mark before its own line, and finds
that line again in what Spark raises.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ackwise.core.errors import AckwiseError, BadInput

P = ParamSpec("P")
R = TypeVar("R")

_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_STATE = re.compile(r"\s*SQLSTATE: \w+.*$")
_RAISED = re.compile(r"[\w.]+: |[\w.]*(Error|Exception|Exit|Interrupt)$")
"""Matches the line of a traceback that names the exception."""

MARK = "ackwise: "
"""Begins each line of Ackwise among the lines of Java."""


def one_line_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: marks the Ackwise errors of a function and removes their cause, so that Spark shows less of them."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with marked_errors():
            result = function(*args, **kwargs)
        return cast(R, _iterate(result)) if isinstance(result, Generator) else result

    return wrapped


def _iterate(items: Generator[R, None, None]) -> Iterator[R]:
    """Iterate over a generator and mark its errors: a generator raises after the decorated function has returned."""
    with marked_errors():
        yield from items


@contextmanager
def marked_errors() -> Iterator[None]:
    """Marks each Ackwise error raised inside, and removes its cause."""
    try:
        yield
    except AckwiseError as problem:
        raise type(problem)(_marked(problem), **problem.details) from None


def _marked(problem: AckwiseError) -> str:
    text = " ".join(problem.message.split())
    return text if text.startswith(MARK) else f"{MARK}{text} [{problem.code}]"


def marked_line(problem: BaseException) -> str | None:
    """The marked line in an exception that Spark raised, without the mark. None if it has no such line."""
    for line in str(problem).splitlines():
        at = line.find(MARK)
        if at >= 0 and line.rstrip().endswith("]"):
            return line[at + len(MARK) :].strip()
    return None


def warn_missing_queue(queue: str) -> None:
    """Tell the user, on the driver's error output, that a query waits for its queue."""
    print(f"ackwise: queue {queue!r} does not exist yet; push to it or create it", file=sys.stderr)


def short_reason(problem: BaseException) -> str:
    """Spark's message in one line, without error codes. Of a Python traceback it is the line with the exception."""
    text = problem.getMessage() if isinstance(problem, PySparkException) else None
    java = getattr(problem, "java_exception", None)
    if java is not None:
        text = java.getMessage() or java.getClass().getName()
    lines = [line.strip() for line in (text or str(problem)).splitlines() if line.strip()]
    if any("Traceback (most recent" in line for line in lines):
        raised = [line for line in lines if _RAISED.match(line) and not _STATE.match(line)]
        lines = raised[-1:] or lines
    first = lines[0] if lines else type(problem).__name__
    if first.startswith("Job aborted"):
        first = first.rpartition("Exception: ")[2]
    text = _STATE.sub("", _CONDITION.sub("", first)).strip()
    if text.endswith("terminated with exception:"):
        # The exception that ended the query has a class and no message.
        cause = str(getattr(problem, "_cause", None) or "unknown cause").splitlines()[0]
        text += " the process of its source died" if "EOFException" in cause else f" {cause}"
    return text or type(problem).__name__


_CODE = re.compile(r"(.*) \[(\w+)\]")


@contextlib.contextmanager
def translate_spark_errors(what: str | None = None) -> Iterator[None]:
    """Converts Spark's errors to one-line Ackwise errors.

    If an input of the user causes the error, `what` names this input, and the error is `BadInput`.
    """
    try:
        yield
    except (PySparkException, Py4JError) as problem:
        own = _CODE.fullmatch(marked_line(problem) or "")
        if own is not None:
            raise (BadInput if own[2] in _bad_input_codes() else AckwiseError)(own[1]) from None
        if what is not None:
            raise BadInput(f"{what}: {short_reason(problem)}") from None
        raise AckwiseError(f"Spark: {short_reason(problem)}") from None


def _bad_input_codes() -> set[str]:
    """Codes of `BadInput` and its subclasses."""
    codes, left = set(), [BadInput]
    while left:
        kind = left.pop()
        codes.add(kind.code)
        left += kind.__subclasses__()
    return codes


class ErrorReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader for invalid options: each of its methods raises the error."""

    def __init__(self, problem: AckwiseError) -> None:
        self._problem = problem

    @one_line_errors
    def _raise(self) -> NoReturn:
        raise self._problem

    def prepareForTriggerAvailableNow(self) -> None:
        self._raise()

    def getDefaultReadLimit(self) -> ReadLimit:
        self._raise()

    def initialOffset(self) -> dict[str, Any]:
        self._raise()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._raise()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._raise()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._raise()
