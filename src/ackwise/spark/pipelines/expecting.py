"""Rules about rows: those that break one are dead-lettered with its reason, the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ackwise.core.errors import BadInput

_broken: ContextVar[list[DataFrame] | None] = ContextVar("ackwise_broken", default=None)


def expect(condition: str | Column, reason: str) -> Callable[[DataFrame], DataFrame]:
    """A step for `.transform(...)`, alone or inside a function with `df.transform(...)`::

        .transform(expect("amount > 0", "the amount is not positive"))

    A row for which the condition is not true (false or null) is rejected with the reason.
    """
    if not reason:
        raise BadInput("expect(condition, reason): the reason must be a text that says what is wrong")
    if not isinstance(condition, str | Column):
        raise BadInput("expect(condition, reason): the condition must be SQL or a column")

    def step(frame: DataFrame) -> DataFrame:
        broken = _broken.get()
        if broken is None:
            raise BadInput("expect(...) works inside a pipeline's .transform(...)")
        if "delivery_id" not in frame.columns:
            raise BadInput(f"expect({reason!r:.60}) needs the column delivery_id; put it before what drops it")
        holds = f.coalesce(f.expr(condition) if isinstance(condition, str) else condition, f.lit(False))
        told = f.lit(reason).alias("reason"), f.lit(False).alias("undecodable")
        broken.append(frame.filter(~holds).select("delivery_id", *told))
        return frame.filter(holds)

    return step


@contextmanager
def collecting() -> Iterator[list[DataFrame]]:
    """The rows that break rules inside, as frames (delivery_id, reason, undecodable)."""
    found: list[DataFrame] = []
    token = _broken.set(found)
    try:
        yield found
    finally:
        _broken.reset(token)
