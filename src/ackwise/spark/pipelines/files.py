"""Small files on whatever file system Spark knows: each is there whole or not at all, whenever we are killed."""

from __future__ import annotations

import uuid
from typing import Any

from pyspark.sql import SparkSession

from ackwise.core.errors import Conflict


def located(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    where = jvm.org.apache.hadoop.fs.Path(path)
    return where.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), where


def read(spark: SparkSession, path: str) -> bytes | None:
    system, where = located(spark, path)
    if not system.exists(where):
        return None
    stream = system.open(where)
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def write(spark: SparkSession, path: str, body: bytes) -> None:
    system, where = located(spark, path)
    draft = where.suffix(f".{uuid.uuid4().hex}.tmp")
    stream = system.create(draft, False)
    try:
        stream.write(bytearray(body))
        stream.hflush()
    finally:
        stream.close()
    if not system.rename(draft, where):
        raise Conflict(f"{path} could not be written, or somebody else starts from this checkpoint at this moment")


def exists(spark: SparkSession, path: str) -> bool:
    system, where = located(spark, path)
    return bool(system.exists(where))
