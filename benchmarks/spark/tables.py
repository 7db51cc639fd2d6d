"""Tables of the Spark benchmark. Every round runs all jobs, so noise affects each. The start of a query counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import ackwise
from ackwise.spark import pipeline, session
from benchmarks import servers
from benchmarks.report import Report
from benchmarks.spark import by_hand
from benchmarks.spark.orders import bill, billed, items
from benchmarks.timing import rates

ROUNDS = 3
COLUMNS = "message_id string, partition string, payload string"
QUEUE = "orders"
PARQUET = "Parquet"
MAPPED = "Parquet, the same map, noop"


def everything(report: Report, folder: Path, messages: int) -> None:
    with ExitStack() as stack:
        home = folder / "spark"
        home.mkdir()
        sqlite = f"sqlite:///{home}/queue.db"
        postgres = stack.enter_context(servers.postgres(home))
        for url in (sqlite, postgres):
            _fill(url, messages)
        served = stack.enter_context(servers.ackwise(home, sqlite, "ackwise")).address
        spark = session("ackwise benchmarks", master="local[2]")
        stack.callback(spark.stop)
        bench = _Bench(spark, home, messages)
        bench.reading(report, {"SQLite": sqlite, "PostgreSQL": postgres, "HTTP, a server on SQLite": served})
        bench.settling(report, {"SQLite": sqlite, "PostgreSQL": postgres, "HTTP, a server on SQLite": served})
        bench.by_hand(report, sqlite, postgres)


def _fill(url: str, messages: int) -> None:
    found = items(messages)
    with ackwise.connect(url) as connection:
        while batch := list(islice(found, 2000)):
            connection.push_many(QUEUE, batch)


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function per record, with try and except, as fast as Spark runs it."""
    for batch in batches:
        good: list[str | None] = []
        bad: list[str | None] = []
        for text in batch.column("payload").to_pylist():
            try:
                good.append(billed(text))
                bad.append(None)
            except Exception as problem:
                good.append(None)
                bad.append(repr(problem))
        yield pa.record_batch([pa.array(good, pa.string()), pa.array(bad, pa.string())], names=["payload", "error"])


class _Bench:
    def __init__(self, spark: SparkSession, home: Path, messages: int) -> None:
        self._spark, self._home, self._messages = spark, home, messages
        self._parquet = str(home / "parquet")
        self._names = count()

    def _table(self, url: str) -> DataFrame:
        reader = self._spark.read.format("ackwise").option("url", url).option("queue", QUEUE)
        return reader.schema(COLUMNS).load()

    def _counted(self, job: Callable[[], object]) -> Callable[[], int]:
        def run() -> int:
            job()
            return self._messages

        return run

    def reading(self, report: Report, stores: dict[str, str]) -> None:
        """`spark.read` of the source beside Parquet with the same columns."""
        self._table(next(iter(stores.values()))).write.parquet(self._parquet)
        jobs = [self._counted(lambda: _noop(self._spark.read.parquet(self._parquet)))]
        jobs += [self._counted(lambda url=url: _noop(self._table(url))) for url in stores.values()]
        for job in jobs:
            job()
        base, *found = rates(ROUNDS, *jobs)
        table = f"spark.read, {self._messages:,} messages, to noop"
        report.add(table, PARQUET, base)
        for name, rate in zip(stores, found, strict=True):
            report.add(table, name, rate, versus=PARQUET, base=base, aim=">= 0.3")

    def _settle(self, url: str, produce: bool) -> None:
        consumed = pipeline(self._spark, url).consume(QUEUE, f"group-{next(self._names)}", max_rows=self._messages)
        mapped = consumed.map(bill, returns="order long, cents long")
        totals = (mapped.produce(f"invoices-{next(self._names)}") if produce else mapped).run()
        assert totals.acked + totals.dead == self._messages, totals

    def settling(self, report: Report, stores: dict[str, str]) -> None:
        """Stream, map, settle beside Parquet, map, noop. One in a hundred is dead-lettered."""
        parquet = self._spark.read.parquet(self._parquet)
        jobs = [self._counted(lambda: _noop(parquet.mapInArrow(_mapped, "payload string, error string")))]
        for produce in (False, True):
            jobs += [self._counted(lambda url=url, p=produce: self._settle(url, p)) for url in stores.values()]
        jobs[0]()
        base, *found = rates(ROUNDS, *jobs)
        table = f"stream -> map -> settle, {self._messages:,} messages, from start to lag 0"
        report.add(table, MAPPED, base)
        for name, rate in zip(stores, found[: len(stores)], strict=True):
            report.add(table, f"to settle, {name}", rate, versus=MAPPED, base=base, aim=">= 0.12")
        for name, rate in zip(stores, found[len(stores) :], strict=True):
            report.add(table, f"queue -> map -> queue, {name}", rate, versus=MAPPED, base=base)

    def by_hand(self, report: Report, sqlite: str, postgres: str) -> None:
        """Queue -> map -> queue with its dead letters beside the hand-written job on the same database."""
        table = f"the same job written by hand, {self._messages:,} messages"
        for name, url in (("SQLite", sqlite), ("PostgreSQL", postgres)):
            theirs, ours = rates(
                ROUNDS,
                self._counted(lambda url=url: self._by_hand(url)),
                self._counted(lambda url=url: self._settle(url, True)),
            )
            report.add(table, f"by hand, two tables, {name}", theirs)
            row = f"queue -> map -> queue, {name}"
            report.add(table, row, ours, versus="by hand", base=theirs, aim=">= 1")

    def _by_hand(self, url: str) -> None:
        name = f"hand{next(self._names)}"
        save: by_hand.Save = (
            by_hand.Postgres(url, name) if url.startswith("postgresql") else by_hand.SQLite(self._home / f"{name}.db")
        )
        source = {"url": url, "queue": QUEUE, "mode": "log", "maxRowsPerTrigger": str(self._messages)}
        rows = by_hand.run(self._spark, source, save, self._home / f"checkpoint-{name}")
        assert rows == self._messages, rows
