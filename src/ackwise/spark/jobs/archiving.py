"""`archive`: messages that every group has finished, as Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwise.client.transport import Transport
from ackwise.core import queries as q
from ackwise.core.answers import Counted, QueueInfo
from ackwise.core.commands import PruneQueue
from ackwise.spark.failing import plainly
from ackwise.spark.jobs.manifests import MESSAGES, Archive, place_name
from ackwise.spark.jobs.tables import Row, collected
from ackwise.spark.reach import absolute, kept, reach
from ackwise.spark.refusals import told
from ackwise.spark.source.packing import Stretch, dealt
from ackwise.spark.source.reading import Batches

ROWS_PER_TASK = 200_000
RESULT = "queue string, messages long, missing long, pruned long, first_at timestamp, last_at timestamp"


class Lane(msgspec.Struct, frozen=True):
    """What a run has to do with a lane: its messages from `place` to `settled`."""

    queue: str
    row: q.LaneRow
    place: int
    settled: int

    @property
    def name(self) -> str:
        return place_name(self.row.partition_id, self.row.priority)

    @property
    def stretch(self) -> Stretch:
        row = self.row
        lo = min(max(self.place, row.start), self.settled)
        return Stretch(row.lane, self.queue, row.partition, row.partition_id, row.priority, lo, self.settled)


def archive(spark: SparkSession, url: str, path: str, queue: str | None = None, *, prune: bool = False) -> DataFrame:
    """Write what every group has finished and is not archived yet to `path`, partitioned by queue and day.

    A message is archived once, however often and wherever a run dies. Rows are `queue, messages, missing, pruned,
    first_at, last_at`; `missing` were removed by retention before they were archived. With `prune` the store then lets
    go of what is archived, as far as every group has finished it.
    """
    url = absolute(url)
    books = Archive(spark, path)
    here = reach(url, duties=False)
    try:
        lanes = _lanes(here.transport, queue, books.places)
        found = _write(spark, url, books, lanes)
        pruned = _prune(here.transport, lanes, books.places) if prune else {}
    finally:
        here.close()
    return spark.createDataFrame([_result(name, lanes, found, pruned) for name in lanes], RESULT)


Lanes = dict[str, list[Lane]]


def _lanes(transport: Transport, queue: str | None, places: dict[str, int]) -> Lanes:
    """By queue."""
    infos: list[QueueInfo] = transport.ask(q.ListQueues())
    names = [info.name for info in infos] if queue is None else [queue]
    lanes: Lanes = {}
    for name in names:
        rows: list[q.LaneRow] = transport.ask(q.ListLanes(queue=name, settled=True))
        lanes[name] = [
            Lane(name, row, places.get(place_name(row.partition_id, row.priority), 0), row.settled or 0) for row in rows
        ]
    return lanes


def _write(spark: SparkSession, url: str, books: Archive, lanes: Lanes) -> dict[str, Row]:
    """What was archived of each queue."""
    ahead = [lane for mine in lanes.values() for lane in mine if lane.settled > lane.place]
    if not ahead:
        return {}
    places = {lane.name: lane.settled for lane in ahead}
    stretches = [lane.stretch for lane in ahead]
    total = sum(map(len, stretches))
    tasks = min(spark.sparkContext.defaultParallelism, -(-total // ROWS_PER_TASK))
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    piles = dealt(stretches, tasks, split=True) if total else []
    if not piles:
        books.commit(None, places, 0, made_at)
        return {}
    with told():
        staged = books.stage(settled_messages(spark, url, piles))
        found = collected(
            books.staged(staged)
            .groupBy("queue")
            .agg(
                F.count("*").alias("messages"),
                F.min("created_at").alias("first_at"),
                F.max("created_at").alias("last_at"),
            )
        )
    books.commit(staged, places, sum(row["messages"] for row in found), made_at)
    return {row["queue"]: row for row in found}


def settled_messages(spark: SparkSession, url: str, piles: list[list[Stretch]]) -> DataFrame:
    """These messages with their day, a pile per task."""
    read = spark.range(0, len(piles), 1, len(piles)).mapInArrow(_reader(url, piles), MESSAGES)
    day = F.date_from_unix_date(F.floor(F.unix_micros("created_at") / 86_400_000_000).cast("int"))
    return read.withColumn("day", day).sortWithinPartitions("queue", "day", "partition_id", "priority", "seq")


def _reader(url: str, piles: list[list[Stretch]]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from Batches(MESSAGES, None).read(kept(url).shelf, piles[number], None)

    return plainly(read)


def _prune(transport: Transport, lanes: Lanes, places: dict[str, int]) -> dict[str, int]:
    """How many messages of each queue the store let go of."""
    removed = {}
    for queue, mine in lanes.items():
        archived = {lane.row.lane: places[lane.name] for lane in mine if lane.name in places}
        removed[queue] = 0
        while archived:
            gone: Counted = transport.send(PruneQueue(queue=queue, lanes=archived))
            removed[queue] += gone.count
            if not gone.count:
                break
    return removed


def _result(name: str, lanes: Lanes, found: dict[str, Row], pruned: dict[str, int]) -> tuple[Any, ...]:
    mine = found.get(name, {"messages": 0, "first_at": None, "last_at": None})
    due = sum(max(0, lane.settled - lane.place) for lane in lanes[name])
    return name, mine["messages"], due - mine["messages"], pruned.get(name, 0), mine["first_at"], mine["last_at"]
