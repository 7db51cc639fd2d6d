"""Tables and the push sink in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from ackwise.core import commands as c
from ackwise.core.messages import NewMessage
from ackwise.core.settlement import Outcome
from ackwise.spark.errors import marked_line
from tests.spark.queue_harness import QueueHarness

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, harness: QueueHarness, table: str = "messages", **options: Any) -> DataFrame:
    return spark.read.format("ackwise").options(url=harness.url, table=table, **options).load()


def pushed(rows: DataFrame, harness: QueueHarness, mode: str = "append", **options: str) -> None:
    writer = rows.write.format("ackwise").option("url", harness.url).option("mode", "push").options(**options)
    writer.mode(mode).save()


def test_rows_pushed_twice_are_stored_once(spark: SparkSession, local_harness: QueueHarness) -> None:
    rows = spark.range(0, 300, 1, 3).selectExpr(
        "to_json(struct(id)) as payload", "concat('p', id % 4) as partition", "concat('t', id) as transaction_id"
    )
    for _ in range(2):
        pushed(rows, local_harness, queue="q")
    found = read(spark, local_harness, queue="q", payloadSchema="id long")
    assert found.count() == 300
    assert found.agg(f.sum("id"), f.countDistinct("id")).first() == (sum(range(300)), 300)
    assert {row["partition"]: row["count"] for row in found.groupBy("partition").count().collect()} == {
        f"p{n}": 75 for n in range(4)
    }


def test_every_table_is_readable_from_spark(spark: SparkSession, harness: QueueHarness) -> None:
    harness.number(10)
    claimed = harness.do(c.Claim(queue="q", group="g", most=5))
    harness.do(
        c.Settle(entries=[c.Settlement(selector=c.ByLease(claimed.lease_id), outcome=Outcome.REJECT, error="no")])
    )
    harness.flush()
    states = read(spark, harness, queue="q", group="g").groupBy("state").count().collect()
    assert {row["state"]: row["count"] for row in states} == {"dead": 5, "ready": 5}
    dead = read(spark, harness, "dead_letters").filter("reason = 'rejected' and error_message = 'no'")
    assert dead.count() == 5
    (place,) = read(spark, harness, "groups", queue="q").collect()
    assert (place["consumer_group"], place["lag"], place["dead"], place["unread"]) == ("g", 5, 5, 5)
    assert read(spark, harness, "leases").filter("ended_at is not null").count() == 1
    assert {row["outcome"]: row["count"] for row in read(spark, harness, "ledger").collect()}["dead"] == 5


def test_batch_read_answers_filters_limits_and_columns(spark: SparkSession, local_harness: QueueHarness) -> None:
    local_harness.number(5000)
    local_harness.send([NewMessage(b'{"n":-1}', headers={"k": "v"})])
    found = read(spark, local_harness, queue="q", maxPartitions=3)
    assert found.rdd.getNumPartitions() == 3
    assert found.count() == 5001
    assert found.limit(3).count() == 3
    assert len(found.select("seq").take(2)) == 2
    assert found.filter("seq = 4711").select("payload").collect() == [('{"n":4711}',)]
    assert found.filter("element_at(headers, 'k') = 'v'").select("payload").collect() == [('{"n":-1}',)]
    assert found.isEmpty() is False
    some = spark.read.format("ackwise").options(url=local_harness.url, table="messages", queue="q")
    pruned = some.schema("seq long, priority int").load()
    assert (pruned.columns, pruned.agg(f.max("seq")).first()) == (["seq", "priority"], (5000,))
    local_harness.configure("empty")
    assert read(spark, local_harness, queue="empty").collect() == []


def test_payloads_that_do_not_fit_are_null_and_say_why(spark: SparkSession, local_harness: QueueHarness) -> None:
    texts = (b'{"n": 1, "at": "2026-01-31T12:00:00Z"}', b'{"n": "x"}', b"{", b'{"at": "2026-01-31T12:00:00Z"}')
    local_harness.send([NewMessage(one) for one in texts])
    found = read(spark, local_harness, queue="q", payloadSchema="n long not null, at timestamp")
    rows = found.selectExpr("n", "n is null as missing", "_corrupt is null as fine", "cast(at as string) as at")
    assert rows.collect() == [
        (1, False, True, "2026-01-31 12:00:00"),
        (None, True, False, None),
        (None, True, False, None),
        (None, True, False, None),
    ]


def line(problem: BaseException) -> str:
    found = marked_line(problem)
    assert found is not None, str(problem)
    return found


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"queu": "q"}, "the ackwise source has no option 'queu'; did you mean queue?"),
        ({"queue": "q", "group": "nobody"}, "'nobody'"),
        ({"queue": "q", "url": "http://127.0.0.1:9"}, "no server answers at http://127.0.0.1:9"),
    ],
)
def test_read_that_is_wrong(
    spark: SparkSession, local_harness: QueueHarness, options: dict[str, str], told: str
) -> None:
    local_harness.number(1)
    with pytest.raises(PySparkException) as caught:
        spark.read.format("ackwise").options(
            **{"url": local_harness.url, "table": "messages", **options}
        ).load().collect()
    assert told in line(caught.value)


def test_schema_that_is_wrong(spark: SparkSession, local_harness: QueueHarness) -> None:
    local_harness.number(1)
    some = spark.read.format("ackwise").options(url=local_harness.url, table="messages", queue="q")
    with pytest.raises(PySparkException) as caught:
        some.schema("seq string").load().collect()
    assert "schema: the column 'seq' is bigint, not string" in line(caught.value)


@pytest.mark.parametrize(
    ("columns", "mode", "told"),
    [
        (["to_json(struct(id)) as payload"], "overwrite", 'a queue cannot be overwritten; use .mode("append")'),
        (["cast(id as string) as body"], "append", "the push sink does not know the column 'body'"),
        (["'hello' as payload"], "append", "the column 'payload' has text that is not JSON: b'hello'"),
    ],
)
def test_push_that_is_wrong(
    spark: SparkSession, local_harness: QueueHarness, columns: list[str], mode: str, told: str
) -> None:
    local_harness.configure()
    with pytest.raises(PySparkException) as caught:
        pushed(spark.range(3).selectExpr(*columns), local_harness, mode, queue="q")
    assert told in line(caught.value)
    assert local_harness.payloads("q") == []
