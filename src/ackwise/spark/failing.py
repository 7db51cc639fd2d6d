"""Errors that cross into Spark: one clear line of ours, whatever Spark wraps around it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar, cast

from pyspark.errors import PySparkException

from ackwise.core.errors import AckwiseError

P = ParamSpec("P")
R = TypeVar("R")

_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_STATE = re.compile(r"\s*SQLSTATE: \w+.*$")
_RAISED = re.compile(r"[\w.]+: |[\w.]*(Error|Exception|Exit|Interrupt)$")
"""The line of a traceback that says what was raised."""

MARK = "ackwise: "
"""What our line begins with, so that it is found again among Java's."""


def plainly(function: Callable[P, R]) -> Callable[P, R]:
    """Spark shows an exception with its traceback; without a cause and with its code it stays short."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with ours():
            found = function(*args, **kwargs)
        return cast(R, _iterated(found)) if isinstance(found, Generator) else found

    return wrapped


def _iterated(found: Generator[R, None, None]) -> Iterator[R]:
    """What is read bit by bit may fail at any bit."""
    with ours():
        yield from found


@contextmanager
def ours() -> Iterator[None]:
    """Errors of ours, marked."""
    try:
        yield
    except AckwiseError as problem:
        raise type(problem)(_marked(problem), **problem.details) from None


def _marked(problem: AckwiseError) -> str:
    text = " ".join(problem.message.split())
    return text if text.startswith(MARK) else f"{MARK}{text} [{problem.code}]"


def line_of(problem: BaseException) -> str | None:
    """Our line among those of an exception that came out of Spark."""
    for line in str(problem).splitlines():
        at = line.find(MARK)
        if at >= 0 and line.rstrip().endswith("]"):
            return line[at + len(MARK) :].strip()
    return None


def reason(problem: BaseException) -> str:
    """What Spark says, in one line, without its codes; of a Python worker's traceback the last line is what counts."""
    text = problem.getMessage() if isinstance(problem, PySparkException) else None
    java = getattr(problem, "java_exception", None)
    if java is not None:
        text = java.getMessage() or java.getClass().getName()
    lines = [line.strip() for line in (text or str(problem)).splitlines() if line.strip()]
    if any("Traceback (most recent" in line for line in lines):
        told = [line for line in lines if _RAISED.match(line) and not _STATE.match(line)]
        lines = told[-1:] or lines
    first = lines[0] if lines else type(problem).__name__
    if first.startswith("Job aborted"):
        first = first.rpartition("Exception: ")[2]
    found = _STATE.sub("", _CONDITION.sub("", first)).strip()
    if found.endswith("terminated with exception:"):
        # What ended the query has a name and no message.
        cause = str(getattr(problem, "_cause", None) or "nobody knows why").splitlines()[0]
        found += " the process of its source died" if "EOFException" in cause else f" {cause}"
    return found or type(problem).__name__
