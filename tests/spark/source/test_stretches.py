"""Tasks that are told where messages are and read them themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from ackwise.core.errors import BadInput
from ackwise.core.messages import NewMessage
from ackwise.spark.connections import close_task_connections
from ackwise.spark.source import lane_ranges
from ackwise.spark.source.lane_ranges import SourceRange, TaskRanges
from ackwise.spark.source.schemas import RANGES, STREAM
from tests.spark.queue_harness import QueueHarness
from tests.spark.source.asking import PLACES, Query, Row

Make = Callable[..., Query]
COLUMNS = StructType([STREAM[name] for name in ("delivery_id", "transaction_id", "partition", "attempt", "payload")])


def planned(one: Query) -> Iterator[pa.RecordBatch]:
    for work in one.reader.partitions(*one.log[-2:]):
        yield from one.reader.read(work)


def numbers(rows: list[Row]) -> list[int]:
    return sorted(int(row["transaction_id"][1:]) for row in rows)


def test_planned_ranges_read_all_messages(harness: QueueHarness, url: str, query: Make) -> None:
    harness.number(300)
    harness.number(200, partition="p", first=300)
    one = query(url, schema=PLACES, maxPartitions=2)
    assert one.plan()
    places = list(planned(one))
    assert sum(batch.num_rows for batch in places) <= 4
    assert all(batch.schema.names == RANGES.names for batch in places)
    rows = [row for batch in lane_ranges.read(url, iter(places), COLUMNS) for row in batch.to_pylist()]
    assert numbers(rows) == list(range(500))
    assert {row["partition"] for row in rows if int(row["transaction_id"][1:]) >= 300} == {"p"}
    assert {row["attempt"] for row in rows} == {1}
    assert harness.settle(rows) == ["acked"] * 500
    assert not one.plan()


def test_reading_goes_on_when_the_connection_was_let_go(harness: QueueHarness, url: str, query: Make) -> None:
    """A reader may have to fork in the middle, and a fork must not inherit a connection."""
    count = 20_000
    for first in range(0, count, 5000):
        harness.number(5000, first=first)
    one = query(url, schema=PLACES, maxPartitions=1)
    assert one.plan()
    found: list[int] = []
    pages = 0
    for batch in lane_ranges.read(url, planned(one), COLUMNS):
        pages += 1
        found += [int(name[1:]) for name in batch.column("transaction_id").to_pylist()]
        close_task_connections()
    assert found == list(range(count))
    assert pages > 1, "else there is nothing to go on with"


def test_range_pruned_before_its_task_reads_is_left_out(local_harness: QueueHarness) -> None:
    local_harness.number(10)
    lane = local_harness.lanes()["Default"].lane
    there = SourceRange(lane, "q", "Default", "", 0, 5, 10)
    gone = SourceRange(lane + 1, "q", "gone", "", 0, 0, 5)
    batches = lane_ranges.read(local_harness.url, [lane_ranges.encode(TaskRanges([gone, there], (1, 2)))], COLUMNS)
    assert numbers([row for batch in batches for row in batch.to_pylist()]) == list(range(5, 10))


def test_task_without_ranges_has_no_row(local_harness: QueueHarness) -> None:
    empty = lane_ranges.encode(TaskRanges([], (1, 2)))
    assert (empty.num_rows, empty.schema.names) == (0, RANGES.names)
    assert list(lane_ranges.read(local_harness.url, [empty], COLUMNS)) == []


def test_payloads_of_any_kind(local_harness: QueueHarness, query: Make) -> None:
    local_harness.send([NewMessage(b"\xff", content_type="application/octet-stream"), NewMessage(b"{")])
    one = query(local_harness.url, schema=PLACES)
    assert one.plan()
    rows = [row for batch in lane_ranges.read(local_harness.url, planned(one), COLUMNS) for row in batch.to_pylist()]
    assert [row["payload"] for row in rows] == ['{"$base64":"/w=="}', "{"]


@pytest.mark.parametrize(
    "options", [{"mode": "log", "group": None}, {"schema": PLACES.replace("lo bigint", "low bigint")}]
)
def test_schema_of_ranges_without_lease_or_column_is_refused(
    local_harness: QueueHarness, query: Make, options: dict[str, Any]
) -> None:
    local_harness.number(1)
    with pytest.raises(BadInput, match="schema: the source has no column 'lane'"):
        query(local_harness.url, **{"schema": PLACES, **options})
