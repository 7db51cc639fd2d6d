"""What a pipeline keeps in its checkpoint beside Spark's own files: who it is, and what it reads."""

from __future__ import annotations

import uuid

import msgspec
from pyspark.sql import SparkSession

from ackwise.core.errors import Conflict
from ackwise.spark.pipelines import files

FILE = "ackwise.json"


class Identity(msgspec.Struct, frozen=True):
    """The nonce is there before the first claim is made, so whoever starts from the checkpoint can take over any."""

    nonce: str
    queue: str
    group: str
    claim_name: str


def identity(spark: SparkSession, checkpoint: str, queue: str, group: str, claim_name: str) -> Identity:
    """The identity in a checkpoint, made when there is none. It may lie on any file system that Spark knows."""
    mine = Identity(uuid.uuid4().hex, queue, group, claim_name)
    text = files.read(spark, f"{checkpoint}/{FILE}")
    if text is None:
        files.write(spark, f"{checkpoint}/{FILE}", msgspec.json.encode(mine))
        return mine
    try:
        found = msgspec.json.decode(text, type=Identity)
    except msgspec.DecodeError as problem:
        raise Conflict(f"{checkpoint}/{FILE} is not a pipeline's: {problem}") from None
    for what in ("queue", "group", "claim_name"):
        if getattr(found, what) != getattr(mine, what):
            raise Conflict(
                f"the checkpoint {checkpoint} belongs to {what} {getattr(found, what)!r}, and this pipeline has "
                f"{getattr(mine, what)!r}; give each pipeline a checkpoint of its own"
            )
    _remove_drafts(spark, f"{checkpoint}/offsets")
    return found


def _remove_drafts(spark: SparkSession, path: str) -> None:
    """Spark that was killed while it wrote its first offset would refuse what it left behind, for ever."""
    system, where = files.located(spark, path)
    if not system.exists(where):
        return
    found = [status.getPath() for status in system.listStatus(where)]
    if all(one.getName().startswith(".") for one in found):
        for draft in found:
            system.delete(draft, False)
