"""`.transform`: DataFrames in, outputs bundled by the record they came from."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.messages import NewMessage
from ackwise.core.queries import Browse
from ackwise.spark import expect, pipeline
from ackwise.spark.pipelines import Pipeline
from ackwise.spark.pipelines.batch_driver import _cached
from ackwise.spark.pipelines.batch_output import keeps_rows_together
from tests.spark.queue_harness import QueueHarness

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def consuming(spark: SparkSession, harness: QueueHarness, *, schema: str | None = "n long", **more: Any) -> Pipeline:
    return pipeline(spark, harness.url).consume("q", "g", schema=schema, **more)


def produced(harness: QueueHarness, queue: str = "out") -> list[Any]:
    return [json.loads(one) for one in harness.payloads(queue)]


def test_rules_joins_and_rows_that_become_several(spark: SparkSession, harness: QueueHarness) -> None:
    harness.number(20)
    harness.number(20, partition="p", first=20)
    harness.send(
        [NewMessage(one, "p", transaction_id=one.decode()) for one in (b'{"n": -1}', b"{}", b'{"n": "x"}', b"[]")]
    )
    names = spark.createDataFrame([(0, "even"), (1, "odd")], "parity long, name string")

    def several(rows: DataFrame) -> DataFrame:
        rows = rows.transform(expect(f.col("n") != 13, "unlucky"))
        rows = rows.filter("n % 10 <> 0").withColumn("parity", f.col("n") % 2).join(names, "parity")
        rows = rows.select(
            "delivery_id", "partition", "n", "name", f.explode(f.sequence(f.lit(1), f.lit(3))).alias("copy")
        )
        return rows.repartition(5).union(rows.withColumn("copy", f.lit(4)).distinct())

    totals = consuming(spark, harness).transform(expect("n >= 0", "negative"), several).produce("out").run()
    dead = {letter.transaction_id: letter for letter in harness.dead()}
    assert {name: (letter.reason, letter.error_type) for name, letter in dead.items()} == {
        '{"n": -1}': ("rejected", "Expectation"),
        "{}": ("rejected", "Expectation"),
        "t13": ("rejected", "Expectation"),
        '{"n": "x"}': ("undecodable", "DecodeError"),
        "[]": ("undecodable", "DecodeError"),
    }
    assert (dead["{}"].error, dead["t13"].error) == ("negative", "unlucky")
    assert dead["[]"].error == "the payload does not fit: Expected `object`, got `array`"
    good = [n for n in range(40) if n % 10 and n != 13]
    outputs = produced(harness)
    assert Counter((one["n"], one["copy"]) for one in outputs) == Counter(
        (n, copy) for n in good for copy in (1, 2, 3, 4)
    )
    assert {one["n"] % 2: one["name"] for one in outputs} == {0: "even", 1: "odd"}
    partitions = {found.partition for found in harness.ask(Browse(queue="out", limit=1000))}
    assert partitions == {"Default", "p"}
    assert harness.counts() == {"acked": 39, "dead": 5}
    assert (totals.acked, totals.filtered, totals.dead, totals.outputs) == (39, 4, 5, 4 * len(good))


def apart(rows: DataFrame) -> DataFrame:
    return rows.repartition(4, "copy")


def apart_and_kept(rows: DataFrame) -> DataFrame:
    return rows.repartition(4, "copy").cache()


def apart_behind_a_checkpoint(rows: DataFrame) -> DataFrame:
    return rows.repartition(4, "copy").localCheckpoint()


def apart_in_one_task(rows: DataFrame) -> DataFrame:
    def reordered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        table = pa.Table.from_batches(list(batches)).sort_by("copy")
        yield from table.to_batches()

    return rows.mapInArrow(reordered, rows.schema)


@pytest.mark.parametrize("move", [apart, apart_and_kept, apart_behind_a_checkpoint, apart_in_one_task])
def test_outputs_of_one_record_that_are_moved_apart(
    spark: SparkSession, local_harness: QueueHarness, move: Callable[[DataFrame], DataFrame]
) -> None:
    """They are pushed together all the same: none is left out, and none is there twice."""
    local_harness.number(12)

    def several(rows: DataFrame) -> DataFrame:
        copies = f.explode(f.sequence(f.lit(1), f.lit(3))).alias("copy")
        return move(rows.select("delivery_id", "n", copies))

    totals = consuming(spark, local_harness).transform(several).produce("out").run()
    found = Counter((one["n"], one["copy"]) for one in produced(local_harness))
    assert found == Counter((n, copy) for n in range(12) for copy in (1, 2, 3))
    assert (totals.acked, totals.already, totals.outputs) == (12, 0, 36)


def test_rows_are_moved_only_where_they_were_apart(spark: SparkSession) -> None:
    """Bringing the rows of a record together costs a shuffle."""
    with _cached(spark.range(4).selectExpr("cast(id as string) as delivery_id", "id as n", "id as row")) as source:
        rows = source.filter("row <> 3").drop("row")
        copies = rows.select("*", f.explode(f.sequence(f.lit(1), f.lit(3))).alias("copy")).filter("copy <> 2")
        for frame in (rows, copies, copies.withColumn("text", f.udf(lambda n: str(n))("n")).filter("text <> '5'")):
            assert keeps_rows_together(frame, source)
        with _cached(copies) as kept:
            for frame in (
                copies.repartition(2),
                rows.union(rows),
                rows.join(rows, "n"),
                rows.sort("n"),
                kept.select("*"),
            ):
                assert not keeps_rows_together(frame, source)


def test_payload_of_ones_own_and_how_it_is_pushed(spark: SparkSession, local_harness: QueueHarness) -> None:
    local_harness.number(4)

    def addressed(rows: DataFrame) -> DataFrame:
        return rows.select(
            "delivery_id",
            f.to_json(f.struct("n", f.lit(None).cast("string").alias("none"))).alias("payload"),
            f.concat(f.lit("out-"), "n").alias("partition"),
            f.col("n").cast("int").alias("priority"),
            f.create_map(f.lit("k"), f.col("n").cast("string")).alias("headers"),
        )

    consuming(spark, local_harness).transform(addressed).produce("out").run()
    found = {one.partition: one for one in local_harness.ask(Browse(queue="out", limit=10))}
    assert {name: (one.priority, one.message.headers) for name, one in found.items()} == {
        f"out-{n}": (n, {"k": str(n)}) for n in range(4)
    }


def test_outputs_of_records_that_are_sought_back_are_there_once(
    spark: SparkSession, local_harness: QueueHarness
) -> None:
    local_harness.number(5)
    doubling = consuming(spark, local_harness).transform(lambda rows: rows.union(rows).select("delivery_id", "n"))
    assert doubling.produce("out").run().outputs == 10
    local_harness.expire()
    again = doubling.produce("out").run()
    assert (again.acked, again.outputs) == (5, 0)
    assert len(local_harness.payloads("out")) == 10


def test_aggregates_are_written(spark: SparkSession, local_harness: QueueHarness, tmp_path: Path) -> None:
    local_harness.number(30)

    def counted(rows: DataFrame) -> DataFrame:
        return rows.groupBy((f.col("n") % 3).alias("rest")).agg(f.sum("n").alias("total"))

    totals = consuming(spark, local_harness).transform(counted).write("json", str(tmp_path / "sums")).run()
    rows = spark.read.json(str(tmp_path / "sums")).groupBy("rest").agg(f.sum("total").alias("total")).collect()
    assert {row["rest"]: row["total"] for row in rows} == {rest: sum(range(rest, 30, 3)) for rest in range(3)}
    assert (totals.acked, totals.rows) == (30, 30)


@pytest.mark.long
def test_record_that_kills_the_process_of_a_udf(spark: SparkSession, local_harness: QueueHarness) -> None:
    """Spark tries such a task four times before it gives up, at every step of the search."""
    local_harness.configure(retry_limit=1)
    local_harness.number(3)

    @f.udf("long", useArrow=False)
    def deadly(n: int) -> int:
        if n == 2:
            os._exit(3)
        return n

    totals = (
        consuming(spark, local_harness)
        .transform(lambda rows: rows.select("delivery_id", deadly("n").alias("m")))
        .produce("out")
        .run()
    )
    (letter,) = local_harness.dead()
    assert (letter.transaction_id, letter.error_type) == ("t2", "TransformFailed")
    assert (totals.acked, totals.dead, len(produced(local_harness))) == (2, 1, 2)


def test_record_that_breaks_an_expression_is_charged_alone(spark: SparkSession, local_harness: QueueHarness) -> None:
    local_harness.configure(retry_limit=2)
    local_harness.number(8)

    def divided(rows: DataFrame) -> DataFrame:
        return rows.select("delivery_id", (f.lit(100) / (f.col("n") - 5)).alias("part"))

    totals = consuming(spark, local_harness).transform(divided).produce("out").run()
    (letter,) = local_harness.dead()
    assert (letter.transaction_id, letter.failures, letter.deliveries) == ("t5", 2, 2)
    assert (letter.error_type, "zero" in letter.error) == ("TransformFailed", True)
    assert len(produced(local_harness)) == 7
    assert (totals.acked, totals.retried, totals.dead) == (7, 1, 1)


def refused(one: Pipeline) -> str:
    """What it says, in one line."""
    with pytest.raises(AckwiseError) as caught:
        one.run()
    text = str(caught.value)
    assert "\n" not in text
    return text


def without_delivery(rows: DataFrame) -> DataFrame:
    return rows.select("n")


def no_frame(rows: DataFrame) -> Any:
    return rows.collect()


def no_column(rows: DataFrame) -> DataFrame:
    return rows.select("delivery_id", "nn")


def nothing_to_push(rows: DataFrame) -> DataFrame:
    return rows.select("delivery_id", "partition")


def rows_of_nobody(rows: DataFrame) -> DataFrame:
    return rows.select("delivery_id", "n").union(rows.selectExpr("cast(null as string)", "n"))


def late_rule(rows: DataFrame) -> DataFrame:
    return rows.select("n").transform(expect("n > 0", "positive"))


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        (without_delivery, "produce needs the column delivery_id, and the transform has dropped it"),
        (no_frame, ".transform: a function returned list, not a DataFrame"),
        (no_column, "`nn`"),
        (nothing_to_push, "produce found no column to push"),
        (rows_of_nobody, "the column 'delivery_id' has a null"),
        (late_rule, "expect('positive') needs the column delivery_id; put it before the step that drops it"),
    ],
)
def test_transform_that_is_wrong_settles_nothing(
    spark: SparkSession, local_harness: QueueHarness, transform: Callable[[DataFrame], DataFrame], told: str
) -> None:
    local_harness.number(4)
    assert told in refused(consuming(spark, local_harness).transform(transform).produce("out"))
    counts = local_harness.counts()
    assert counts.get("unread", 0) + counts.get("held", 0) == 4
    assert local_harness.leases() == []


def test_output_that_cannot_be_pushed_is_its_records_fault(spark: SparkSession, harness: QueueHarness) -> None:
    harness.number(5)

    def some(rows: DataFrame) -> DataFrame:
        payload = "case n when 1 then 'hello' when 2 then null else payload end as payload"
        return rows.selectExpr("delivery_id", payload, "if(n = 3, -1.0D, 0.0D) as delay_seconds")

    consuming(spark, harness).transform(some).produce("out").run()
    letters = {letter.transaction_id: letter for letter in harness.dead()}
    assert {letter.reason for letter in letters.values()} == {"rejected"}
    assert {
        name: letter.error.removeprefix("the output cannot be pushed: ")[:44] for name, letter in letters.items()
    } == {
        "t1": "the column 'payload' has text that is not JS",
        "t2": "the column 'payload' has a null; use to_json",
        "t3": "the column 'delay_seconds' must be between 0",
    }
    assert sorted(one["n"] for one in produced(harness)) == [0, 4]


def test_rules_that_are_wrong(spark: SparkSession) -> None:
    for condition, reason in (("n > 0", ""), (True, "x")):
        with pytest.raises(BadInput, match=r"^expect\(condition, reason\): "):
            expect(condition, reason)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"works inside a pipeline's .transform"):
        spark.range(1).transform(expect("id > 0", "positive"))
