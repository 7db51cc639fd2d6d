"""Tasks that are told where messages are and read them themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from ackwise.core.errors import BadInput
from ackwise.core.messages import NewMessage
from ackwise.spark.reach import let_go
from ackwise.spark.source import stretches
from ackwise.spark.source.packing import Stretch, Work
from ackwise.spark.source.schemas import STREAM, STRETCHES
from tests.spark.source.asking import PLACES, Query, Row
from tests.spark.stores import Desk

Make = Callable[..., Query]
COLUMNS = StructType([STREAM[name] for name in ("delivery_id", "transaction_id", "partition", "attempt", "payload")])


def planned(one: Query) -> Iterator[pa.RecordBatch]:
    for work in one.reader.partitions(*one.log[-2:]):
        yield from one.reader.read(work)


def numbers(rows: list[Row]) -> list[int]:
    return sorted(int(row["transaction_id"][1:]) for row in rows)


def test_the_same_messages_by_another_way(desk: Desk, url: str, query: Make) -> None:
    desk.number(300)
    desk.number(200, partition="p", first=300)
    one = query(url, schema=PLACES, maxPartitions=2)
    assert one.plan()
    places = list(planned(one))
    assert sum(batch.num_rows for batch in places) <= 4
    assert all(batch.schema.names == STRETCHES.names for batch in places)
    rows = [row for batch in stretches.read(url, iter(places), COLUMNS) for row in batch.to_pylist()]
    assert numbers(rows) == list(range(500))
    assert {row["partition"] for row in rows if int(row["transaction_id"][1:]) >= 300} == {"p"}
    assert {row["attempt"] for row in rows} == {1}
    assert desk.settle(rows) == ["acked"] * 500
    assert not one.plan()


def test_reading_goes_on_when_the_connection_was_let_go(desk: Desk, url: str, query: Make) -> None:
    """Whoever reads may have to fork in the middle, and a fork must not inherit a connection."""
    count = 20_000
    for first in range(0, count, 5000):
        desk.number(5000, first=first)
    one = query(url, schema=PLACES, maxPartitions=1)
    assert one.plan()
    found: list[int] = []
    pages = 0
    for batch in stretches.read(url, planned(one), COLUMNS):
        pages += 1
        found += [int(name[1:]) for name in batch.column("transaction_id").to_pylist()]
        let_go()
    assert found == list(range(count))
    assert pages > 1, "else there is nothing to go on with"


def test_what_is_pruned_meanwhile_is_left_out(local_desk: Desk) -> None:
    local_desk.number(10)
    lane = local_desk.lanes()["Default"].lane
    there = Stretch(lane, "q", "Default", "", 0, 5, 10)
    gone = Stretch(lane + 1, "q", "gone", "", 0, 0, 5)
    batches = stretches.read(local_desk.url, [stretches.batch(Work([gone, there], (1, 2)))], COLUMNS)
    assert numbers([row for batch in batches for row in batch.to_pylist()]) == list(range(5, 10))


def test_nothing_to_do_is_no_row(local_desk: Desk) -> None:
    empty = stretches.batch(Work([], (1, 2)))
    assert (empty.num_rows, empty.schema.names) == (0, STRETCHES.names)
    assert list(stretches.read(local_desk.url, [empty], COLUMNS)) == []


def test_payloads_of_any_kind(local_desk: Desk, query: Make) -> None:
    local_desk.send([NewMessage(b"\xff", content_type="application/octet-stream"), NewMessage(b"{")])
    one = query(local_desk.url, schema=PLACES)
    assert one.plan()
    rows = [row for batch in stretches.read(local_desk.url, planned(one), COLUMNS) for row in batch.to_pylist()]
    assert [row["payload"] for row in rows] == ['{"$base64":"/w=="}', "{"]


@pytest.mark.parametrize(
    "options", [{"mode": "log", "group": None}, {"schema": PLACES.replace("lo bigint", "low bigint")}]
)
def test_only_a_lease_has_places_and_only_all_of_them(local_desk: Desk, query: Make, options: dict[str, Any]) -> None:
    local_desk.number(1)
    with pytest.raises(BadInput, match="schema: the source has no column 'lane'"):
        query(local_desk.url, **{"schema": PLACES, **options})
