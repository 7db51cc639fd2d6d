"""What a pipeline does, as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType


class Mapped(msgspec.Struct, frozen=True):
    """A function per record."""

    function: Callable[..., Any]
    returns: StructType | None
    timeout: float | None


class Transformed(msgspec.Struct, frozen=True):
    """DataFrames, one after the other."""

    functions: tuple[Callable[[DataFrame], DataFrame], ...]


class Write(msgspec.Struct, frozen=True):
    """Where Spark writes what comes out."""

    format: str
    path: str | None
    options: dict[str, str]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `lease` is in microseconds."""

    url: str
    queue: str
    group: str
    schema: StructType | None
    start: str
    max_rows: int
    lease: int
    claim_name: str | None
    max_partitions: int | None
    step: Mapped | Transformed | None = None
    produce: str | None = None
    write: Write | None = None
