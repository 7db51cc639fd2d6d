"""Hand-written job: `foreachBatch`, `mapInPandas` with try and except, good rows into one table, bad ones into
another of the same database. Nothing is collected to the driver. A batch that is run again writes its rows again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psycopg
from pyspark.sql import DataFrame, SparkSession

from benchmarks.spark.orders import billed

Rows = list[tuple[str, str]]
Save = Callable[[Rows, Rows], None]


def job(save: Save) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    def work(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            good: Rows = []
            bad: Rows = []
            for name, text in zip(frame["message_id"], frame["payload"], strict=True):
                try:
                    good.append((name, billed(text)))
                except Exception as problem:
                    bad.append((name, str(problem)))
            save(good, bad)
            yield pd.DataFrame({"good": [len(good)], "bad": [len(bad)]})

    return work


def run(spark: SparkSession, source: dict[str, str], save: Save, checkpoint: Path) -> int:
    """Run the job. Returns the number of rows written."""
    rows = 0

    def each(batch: DataFrame, _: int) -> None:
        nonlocal rows
        done = batch.select("message_id", "payload").mapInPandas(job(save), "good long, bad long")
        total = done.groupBy().sum("good", "bad").first()
        assert total is not None
        rows += total[0] + total[1]

    stream = spark.readStream.format("ackwise").options(**source).load().writeStream.foreachBatch(each)
    stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return rows


class SQLite:
    """Two tables in a SQLite file, as durable as Ackwise."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        with self._open() as database:
            database.execute("CREATE TABLE good (message_id TEXT PRIMARY KEY, payload TEXT)")
            database.execute("CREATE TABLE bad (message_id TEXT PRIMARY KEY, error TEXT)")

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=60)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        return database

    def __call__(self, good: Rows, bad: Rows) -> None:
        database = self._open()
        with database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT OR REPLACE INTO good VALUES (?, ?)", good)
            database.executemany("INSERT OR REPLACE INTO bad VALUES (?, ?)", bad)
        database.close()


class Postgres:
    """Two tables in a database."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name
        with psycopg.connect(url) as database:
            database.execute(f"CREATE TABLE {name}_good (message_id TEXT PRIMARY KEY, payload TEXT)")  # type: ignore[arg-type]
            database.execute(f"CREATE TABLE {name}_bad (message_id TEXT PRIMARY KEY, error TEXT)")  # type: ignore[arg-type]

    def __call__(self, good: Rows, bad: Rows) -> None:
        with psycopg.connect(self.url) as database, database.cursor() as cursor:
            for table, rows in ((f"{self.name}_good", good), (f"{self.name}_bad", bad)):
                statement: Any = f"INSERT INTO {table} VALUES (%s, %s) ON CONFLICT DO NOTHING"
                cursor.executemany(statement, rows)
