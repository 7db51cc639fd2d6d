"""Plan of a pipeline, as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ackwise.core.policy import Backoff, GroupPolicy

PIPELINE_POLICY = GroupPolicy(retry_limit=3, backoff=Backoff(kind="schedule", delays=(0.5, 2.0)))
"""Policy of a group that a pipeline creates. A run should end: a record that always fails delays the end by seconds."""


class MapStep(msgspec.Struct, frozen=True):
    """`.map`: a function per record."""

    function: Callable[..., Any]
    returns: StructType | None
    timeout: float | None


class TransformStep(msgspec.Struct, frozen=True):
    """`.transform`: functions from DataFrame to DataFrame, applied in order."""

    functions: tuple[Callable[[DataFrame], DataFrame], ...]


class Write(msgspec.Struct, frozen=True):
    """`.write`: where Spark writes the results, and in which format."""

    format: str
    path: str | None
    options: dict[str, str]


class PipelinePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Whole plan of a pipeline. `lease` is in microseconds."""

    url: str
    queue: str
    group: str
    schema: StructType | None
    start: str
    max_rows: int
    lease: int
    claim_name: str | None
    max_partitions: int | None
    policy: GroupPolicy | None = None
    """The policy that the caller chose for the group. None: a new group gets `PIPELINE_POLICY`."""
    step: MapStep | TransformStep | None = None
    produce: str | None = None
    write: Write | None = None
