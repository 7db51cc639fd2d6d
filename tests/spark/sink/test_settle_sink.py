"""`mode=settle`: every row settles a delivery."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ackwise.core import commands as c
from ackwise.core import ids
from ackwise.core.answers import Claimed
from ackwise.core.errors import BadInput
from ackwise.spark.sink import settle_writer
from tests.spark.queue_harness import QueueHarness
from tests.spark.sink.writing import Row, Sink

PLAIN = "delivery_id string, outcome string"
FULL = "delivery_id string, outcome string, delay_seconds double, error string"


def sink(harness: QueueHarness, schema: str = PLAIN, **options: Any) -> Sink:
    return Sink(schema, url=harness.url, mode="settle", **options)


def claimed(harness: QueueHarness, count: int) -> list[str]:
    answer: Claimed = harness.do(c.Claim(queue="q", group="g", most=count))
    return [
        ids.delivery_id(answer.lease_no, answer.tag, g.lane, seq) for g in answer.grants for seq in range(g.lo, g.hi)
    ]


def test_settle_sink_writes_every_outcome(harness: QueueHarness) -> None:
    harness.number(6)
    one = claimed(harness, 6)
    rows: list[Row] = [{"delivery_id": delivery, "outcome": "ack"} for delivery in one]
    rows[1] |= {"outcome": "retry", "delay_seconds": 3600.0, "error": "busy"}
    rows[2] |= {"outcome": "reject", "error": "never"}
    rows[3] |= {"outcome": "release"}
    assert sink(harness, FULL).write(rows[:4], rows[4:]) == {"acked": 3, "retried": 1, "dead": 1, "released": 1}
    assert harness.counts() == {"acked": 3, "dead": 1, "held": 2}
    (letter,) = harness.dead()
    assert (letter.transaction_id, letter.reason, letter.error) == ("t2", "rejected", "never")


def test_repeated_settle_sink_settles_nothing_again(harness: QueueHarness, capsys: pytest.CaptureFixture[str]) -> None:
    """A task that is run again, and a batch that is."""
    harness.number(4)
    rows: list[Row] = [{"delivery_id": delivery, "outcome": "ack"} for delivery in claimed(harness, 4)]
    one = sink(harness)
    assert one.write(rows[:3]) == {"acked": 3}
    assert one.write(rows) == {"acked": 1, "already": 3}
    assert capsys.readouterr().err == ""
    assert harness.counts() == {"acked": 4}


@pytest.mark.parametrize("stream", [False, True])
def test_rows_that_come_too_late_are_counted_and_said(
    harness: QueueHarness, capsys: pytest.CaptureFixture[str], stream: bool
) -> None:
    harness.number(4)
    rows: list[Row] = [{"delivery_id": delivery, "outcome": "ack"} for delivery in claimed(harness, 4)]
    harness.expire()
    one = sink(harness, stream=stream)
    messages = [one.task(rows[:1]), one.task([*rows[1:], {"delivery_id": "nonsense", "outcome": "ack"}]), None]
    one.commit(*messages, batch=3)
    where = "batch 3: " if stream else ""
    said = capsys.readouterr().err
    assert re.fullmatch(rf"ackwise: {where}.*\n", said)
    assert all(part in said for part in ("4 stale", "1 unknown", "of 5 settlements", "leases had ended"))
    assert harness.counts() == {"unread": 4}


def test_settle_sink_writes_many_rows_in_portions(harness: QueueHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle_writer, "MOST_ROWS", 7)
    harness.number(50)
    rows: list[Row] = [{"delivery_id": delivery, "outcome": "ack"} for delivery in claimed(harness, 50)]
    assert sink(harness).write(rows[:20], rows[20:22], rows[22:]) == {"acked": 50}


def test_error_as_long_as_a_book_is_cut(harness: QueueHarness) -> None:
    harness.number(1)
    (one,) = claimed(harness, 1)
    sink(harness, FULL).write([{"delivery_id": one, "outcome": "reject", "error": "x" * 100_000 + "\0"}])
    assert harness.dead()[0].error == "x" * 8192


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("delivery_id string", "the settle sink needs a column 'outcome'; there are delivery_id"),
        ("outcome string", "the settle sink needs a column 'delivery_id'"),
        (f"{PLAIN}, why string", "the settle sink does not know the column 'why'; it takes delivery_id, outcome"),
        ("delivery_id long, outcome string", "the column 'delivery_id' must be string, not bigint"),
        (f"{PLAIN}, delay_seconds string", "the column 'delay_seconds' must be double or float or int or bigint"),
    ],
)
def test_columns_that_are_wrong(local_harness: QueueHarness, schema: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        sink(local_harness, schema)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"delivery_id": None}, "the column 'delivery_id' has a null; read it from a stream in lease mode"),
        ({"outcome": "done"}, "the column 'outcome' has 'done'; it takes ack, retry, reject, release"),
        ({"outcome": None}, "the column 'outcome' has None; it takes ack, retry, reject, release"),
        ({"outcome": "ACK"}, "the column 'outcome' has 'ACK'"),
        ({"delay_seconds": -1.0}, "the column 'delay_seconds' must be between 0"),
        ({"delay_seconds": float("inf")}, "the column 'delay_seconds' must be a finite number"),
    ],
)
def test_rows_that_are_wrong(harness: QueueHarness, row: Row, told: str) -> None:
    """Nothing of their batch is settled."""
    harness.number(3)
    rows: list[Row] = [{"delivery_id": delivery, "outcome": "ack"} for delivery in claimed(harness, 3)]
    rows[2] |= row
    with pytest.raises(BadInput) as caught:
        sink(harness, FULL).task(rows)
    assert str(caught.value).startswith("ackwise: ")
    assert told in str(caught.value)
    assert harness.counts() == {"held": 3}


def test_settle_sink_without_rows_settles_nothing(harness: QueueHarness) -> None:
    harness.configure()
    assert sink(harness).write() == {}
    assert sink(harness).write([]) == {}
