"""`mode=push`: every row is a message."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.core.errors import BadInput
from ackwise.core.queries import Browse, QueueStats
from ackwise.core.rows import BrowsedMessage
from ackwise.spark.sink import push_writer
from tests.spark.queue_harness import QueueHarness
from tests.spark.sink.writing import Row, Sink

EVERYTHING = (
    "payload string, partition string, priority int, transaction_id string, headers map<string,string>, "
    "delay_seconds double"
)


def sink(harness: QueueHarness, schema: str, **options: Any) -> Sink:
    return Sink(schema, url=harness.url, mode="push", queue="q", **options)


def messages(harness: QueueHarness) -> list[BrowsedMessage]:
    found: list[BrowsedMessage] = harness.ask(Browse(queue="q", limit=10_000))
    return found


def test_push_sink_of_payloads_queues_all_rows(harness: QueueHarness) -> None:
    rows: list[Row] = [{"payload": f'{{"n": {number}}}'} for number in range(5)]
    assert sink(harness, "payload string").write(rows[:2], [], rows[2:]) == {"queued": 5}
    assert harness.payloads("q") == [row["payload"].encode() for row in rows]


def test_push_sink_writes_every_column(harness: QueueHarness) -> None:
    rows: list[Row] = [
        {
            "payload": "1",
            "partition": "p",
            "priority": 3,
            "transaction_id": "t",
            "headers": [("k", "é")],
            "delay_seconds": None,
        },
        {
            "payload": "2",
            "partition": None,
            "priority": None,
            "transaction_id": None,
            "headers": None,
            "delay_seconds": 3600.0,
        },
        {
            "payload": "3",
            "partition": None,
            "priority": None,
            "transaction_id": None,
            "headers": None,
            "delay_seconds": 0.0,
        },
    ]
    assert sink(harness, EVERYTHING).write(rows) == {"queued": 2, "scheduled": 1}
    found = {one.message.payload: one for one in messages(harness)}
    first = found[b"1"]
    assert (first.partition, first.priority, first.message.transaction_id) == ("p", 3, "t")
    assert first.message.headers == {"k": "é"}
    assert (found[b"3"].partition, found[b"3"].priority, found[b"3"].message.headers) == ("Default", 0, {})
    assert harness.ask(QueueStats(queue="q")).scheduled == 1


def test_row_with_a_transaction_id_is_pushed_once(harness: QueueHarness) -> None:
    rows: list[Row] = [
        {"payload": str(number), "partition": f"p{number % 3}", "transaction_id": f"t{number}"} for number in range(9)
    ]
    one = sink(harness, "payload string, partition string, transaction_id string")
    assert one.write(rows[:5]) == {"queued": 5}
    assert one.write(rows) == {"queued": 4, "duplicate": 5}
    assert sorted(harness.payloads("q")) == [str(number).encode() for number in range(9)]
    for found in messages(harness):
        assert found.partition == f"p{int(found.message.payload) % 3}"


def test_row_without_a_transaction_id_may_come_twice(harness: QueueHarness) -> None:
    rows: list[Row] = [{"payload": "1", "transaction_id": "t"}, {"payload": "2", "transaction_id": None}]
    one = sink(harness, "payload string, transaction_id string")
    assert one.write(rows) == {"queued": 2}
    assert one.write(rows) == {"queued": 1, "duplicate": 1}


def test_messages_of_a_partition_keep_their_order(harness: QueueHarness) -> None:
    rows: list[Row] = [{"payload": str(number), "partition": f"p{number % 2}"} for number in range(50)]
    sink(harness, "payload string, partition string").write(rows)
    for partition in ("p0", "p1"):
        found = harness.ask(Browse(queue="q", partition=partition, limit=100))
        payloads = [int(one.message.payload) for one in found]
        assert payloads == sorted(payloads)


def test_bytes_are_bytes(harness: QueueHarness) -> None:
    sink(harness, "payload binary").write([{"payload": b"\xff"}, {"payload": b"{"}])
    assert [(one.message.payload, one.message.content_type) for one in messages(harness)] == [
        (b"\xff", "application/octet-stream"),
        (b"{", "application/octet-stream"),
    ]


@pytest.mark.parametrize("schema", ["payload string, partition string", "payload string, priority int"])
def test_push_sink_writes_many_rows_in_portions(
    harness: QueueHarness, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    monkeypatch.setattr(push_writer, "MOST_ROWS", 7)
    monkeypatch.setattr(push_writer, "MOST_BYTES", 300)
    texts = [f'"{"x" * (number % 60)}{number}"' for number in range(100)]
    assert sink(harness, schema).write([{"payload": text} for text in texts]) == {"queued": 100}
    assert sorted(harness.payloads("q")) == sorted(text.encode() for text in texts)


def test_push_sink_of_a_stream_writes_all_tasks(harness: QueueHarness, capsys: pytest.CaptureFixture[str]) -> None:
    one = sink(harness, "payload string", stream=True)
    one.commit(one.task([{"payload": "1"}]), one.task([]), one.task([{"payload": "2"}]), batch=7)
    one.writer.abort([None], 8)
    assert harness.payloads("q") == [b"1", b"2"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("body string", "the push sink does not know the column 'body'; it takes payload, partition, priority"),
        ("partition string", "the push sink needs a column 'payload'; there are partition"),
        ("payload long", "the push sink: the column 'payload' must be string or binary, not bigint"),
        ("payload struct<a: int>", "the push sink: the column 'payload' must be string or binary, not struct<a:int>"),
        ("payload string, priority string", "the column 'priority' must be int or bigint or smallint, not string"),
        ("payload string, headers string", "the column 'headers' must be map<string,string>"),
        ("payload string, delay_seconds string", "the column 'delay_seconds' must be double"),
        ("payload string, Partition string", "does not know the column 'Partition'"),
    ],
)
def test_columns_that_are_wrong(local_harness: QueueHarness, schema: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        sink(local_harness, schema)
    assert str(caught.value).startswith("ackwise: ")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "row", "told"),
    [
        ("payload string", {"payload": None}, "the column 'payload' has a null; use to_json(...)"),
        ("payload string", {"payload": "{"}, "the column 'payload' has text that is not JSON: b'{'; to_json(...)"),
        ("payload string", {"payload": "hello"}, "the column 'payload' has text that is not JSON: b'hello'"),
        ("payload string, priority int", {"payload": "1", "priority": -1}, "priority must be between 0"),
        ("payload string, transaction_id string", {"payload": "1", "transaction_id": "x" * 600}, "transaction_id"),
        ("payload string, partition string", {"payload": "1", "partition": "x" * 600}, "partition is longer than 255"),
        ("payload string, delay_seconds double", {"payload": "1", "delay_seconds": -1.0}, "the column 'delay_seconds'"),
        (
            "payload string, delay_seconds double",
            {"payload": "1", "delay_seconds": float("nan")},
            "the column 'delay_seconds' must be a finite number",
        ),
    ],
)
def test_rows_that_are_wrong(harness: QueueHarness, schema: str, row: Row, told: str) -> None:
    """Nothing of their batch is pushed."""
    harness.configure()
    good: Row = {**row, "payload": "1", "transaction_id": "t", "priority": 1, "delay_seconds": 0.0, "partition": "p"}
    names = [part.split()[0] for part in schema.split(", ")]
    with pytest.raises(BadInput) as caught:
        sink(harness, schema).task([{name: good[name] for name in names}, row])
    assert str(caught.value).startswith("ackwise: ")
    assert told in str(caught.value)
    assert harness.payloads("q") == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "push"}, "option queue is missing: set the queue to push to"),
        ({"queue": "q"}, 'option mode is missing: .option("mode", "push") or .option("mode", "settle")'),
        ({"mode": "pull", "queue": "q"}, "option mode is 'pull'; it must be one of push, settle"),
        ({"mode": "push", "queue": ""}, "option queue must not be empty"),
        ({"mode": "push", "queu": "q"}, "the ackwise sink has no option 'queu'; did you mean queue?"),
        ({"mode": "push", "queue": "q", "group": "g"}, "the ackwise sink has no option 'group'"),
    ],
)
def test_options_that_are_wrong(local_url: str, options: dict[str, str], told: str) -> None:
    for stream in (False, True):
        with pytest.raises(BadInput) as caught:
            Sink("payload string", stream=stream, **{"url": local_url, **options})  # type: ignore[arg-type]
        assert str(caught.value).startswith("ackwise: ")
        assert told in str(caught.value)


def test_queue_is_not_overwritten(local_harness: QueueHarness) -> None:
    with pytest.raises(BadInput, match=r'^ackwise: a queue cannot be overwritten; use .mode\("append"\)'):
        sink(local_harness, "payload string", overwrite=True)


def test_push_sink_without_a_url_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACKWISE_URL", raising=False)
    with pytest.raises(BadInput, match="option url is missing"):
        Sink("payload string", mode="push", queue="q")
