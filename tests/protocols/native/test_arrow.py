"""Arrow IPC streams out and in."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.protocols.native.native_api import ARROW, NativeApi, read_arrow, write_arrow

SOURCE = pa.schema(
    [
        ("delivery_id", pa.string()),
        ("message_id", pa.string()),
        ("transaction_id", pa.string()),
        ("queue", pa.string()),
        ("partition", pa.string()),
        ("priority", pa.int32()),
        ("seq", pa.int64()),
        ("attempt", pa.int32()),
        ("payload", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("created_at", pa.timestamp("us", tz="UTC")),
    ]
)


def claimed(native: NativeApi, **body: Any) -> Any:
    return read_arrow(native.raw("/v1/claim", json.dumps(body).encode(), accept=ARROW))


def push(native: NativeApi, table: Any, query: str = "queue=q") -> Any:
    answer = native.raw(f"/v1/push?{query}", write_arrow(table), **{"content-type": ARROW})
    return answer.status_code, answer.json()


def test_claim_has_the_columns_of_the_source(native_anywhere: NativeApi) -> None:
    native = native_anywhere
    native.raw("/v1/push", b'{"queue":"q","messages":[{"payload":{"a": 1.0,  "b":[ ]}}]}')
    native.push("q", "é", partition="p", priority=2, transaction_id="t", headers={"k": "v", "": "é"})
    native.push("q", {"$base64": "/w=="}, content_type="image/png")
    table = claimed(native, queue="q", group="g", max=9)
    assert table.schema.equals(SOURCE)
    rows = {row["payload"]: row for row in table.to_pylist()}
    assert set(rows) == {'{"a": 1.0,  "b":[ ]}', '"é"', '{"$base64":"/w=="}'}
    row = rows['"é"']
    assert (row["queue"], row["partition"], row["priority"], row["seq"], row["attempt"]) == ("q", "p", 2, 0, 1)
    assert (row["transaction_id"], dict(row["headers"])) == ("t", {"k": "v", "": "é"})
    assert row["created_at"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    head = json.loads(table.schema.metadata[b"ackwise"])
    assert (head["group"], head["deadline"]) == ("g", "2023-11-14T22:13:50.000000Z")
    ids = table.column("delivery_id").to_pylist()
    verdicts = native.settle(*({"delivery_id": one, "outcome": "ack"} for one in ids))
    assert [one["verdict"] for one in verdicts] == ["acked"] * 3
    assert all(one.startswith(head["lease_id"]) for one in ids)


def test_empty_claim_is_an_empty_stream_that_says_why(native: NativeApi) -> None:
    native.admin("configure_queue", queue="q")
    table = claimed(native, queue="q")
    assert (table.num_rows, table.schema.names) == (0, SOURCE.names)
    assert json.loads(table.schema.metadata[b"ackwise"])["empty"] == "empty"


def test_large_claim_as_arrow_has_every_message(native: NativeApi) -> None:
    native.ok("/v1/push", {"queue": "q", "payloads": list(range(3000)), "partition": "p"})
    table = claimed(native, queue="q", max=3000)
    assert table.column("payload").to_pylist() == [str(n) for n in range(3000)]
    assert len(set(table.column("delivery_id").to_pylist())) == 3000


def test_settling_goes_with_an_arrow_claim_and_ahead_does_not(native: NativeApi) -> None:
    native.push("q", 1)
    lease = native.claim("q")["lease_id"]
    table = claimed(native, queue="q", settle=[{"lease_id": lease, "outcome": "ack"}])
    assert json.loads(table.schema.metadata[b"ackwise"])["verdicts"] == [{"lease_id": lease, "verdict": "acked"}]
    answer = native.raw("/v1/claim", b'{"queue":"q","ahead":2}', accept=ARROW)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_input")


def test_tables_as_streams(native: NativeApi) -> None:
    native.push("q", {"n": 1}, {"n": 2}, {"n": 3}, headers={"a": "b"})
    claim = native.claim("q", group="g", max=2)
    native.clock.advance(1)
    native.settle({"delivery_id": claim["messages"][0]["delivery_id"], "outcome": "reject", "error": "no"})
    for name, query in (
        ("messages", {"queue": "q", "group": "g"}),
        ("dead_letters", {}),
        ("leases", {}),
        ("groups", {}),
        ("ledger", {}),
    ):
        table, rows = native.arrow_table(name, **query), native.rows(name, **query)
        assert table.num_rows == len(rows) > 0, name
        assert table.schema.names == list(rows[0]), name
    messages = native.arrow_table("messages", queue="q", limit=2)
    assert messages.column("payload").to_pylist() == ['{"n": 1}', '{"n": 2}']
    assert messages.schema.field("created_at").type == pa.timestamp("us", tz="UTC")
    answer = native.http.get("/v1/tables/messages?queue=q&limit=2", headers={"accept": ARROW})
    rest = native.rows("messages", queue="q", after=answer.headers["x-ackwise-next"])
    assert [row["payload"] for row in rest] == [{"n": 3}]
    dead = native.http.get("/v1/tables/dead_letters", headers={"accept": ARROW})
    assert dead.headers["x-ackwise-total"] == "1"
    (latency,) = [dict(row) for row in native.arrow_table("ledger").column("latency").to_pylist() if row]
    assert min(latency) >= 1.0


def test_stream_is_pushed(native: NativeApi) -> None:
    table = pa.table(
        {
            "payload": ['{"a": 1.0,  "b":[ ]}', "2", "3"],
            "partition": pa.array(["p", None, "p"]).dictionary_encode(),
            "priority": pa.array([1, None, 0], pa.int16()),
            "transaction_id": ["a", "b", None],
            "headers": pa.array([[("k", "v")], None, []], pa.map_(pa.string(), pa.string())),
            "delay_seconds": pa.array([None, None, 5.0]),
        }
    )
    status, answer = push(native, table)
    assert status == 200, answer
    assert [(r["status"], r["partition"]) for r in answer["receipts"]] == [
        ("queued", "p"),
        ("queued", "Default"),
        ("scheduled", "p"),
    ]
    found = {m["transaction_id"]: m for m in native.claim("q", max=9)["messages"]}
    assert (found["a"]["payload"], found["a"]["priority"], found["a"]["headers"]) == (
        {"a": 1.0, "b": []},
        1,
        {"k": "v"},
    )
    assert [row["payload"] for row in native.arrow_table("messages", queue="q", partition="p").to_pylist()] == [
        '{"a": 1.0,  "b":[ ]}'
    ]
    assert push(native, table)[1]["receipts"][0]["status"] == "duplicate"


def test_payloads_alone_text_is_json_and_binary_is_bytes(native: NativeApi) -> None:
    assert push(native, pa.table({"payload": pa.array(["1", "2"], pa.large_string())}))[0] == 200
    assert push(native, pa.table({"payload": [b"\x00", b"\xff"]}))[0] == 200
    kinds = pa.table({"payload": [b"<a/>", b"[1]"], "content_type": ["text/xml", "application/json"]})
    assert push(native, kinds)[0] == 200
    assert push(native, pa.table({"payload": pa.array([], pa.string())})) == (200, {"receipts": []})
    found = native.claim("q", max=9)["messages"]
    assert [(m["payload"], m["content_type"]) for m in found] == [
        (1, "application/json"),
        (2, "application/json"),
        ({"$base64": "AA=="}, "application/octet-stream"),
        ({"$base64": "/w=="}, "application/octet-stream"),
        ({"$base64": "PGEvPg=="}, "text/xml"),
        ([1], "application/json"),
    ]


@pytest.mark.parametrize(
    ("table", "query", "told"),
    [
        (pa.table({"payload": ["{"]}), "queue=q", "row 0 is not JSON"),
        (pa.table({"payload": ["1", "x"], "partition": ["a", "b"]}), "queue=q", "row 1 is not JSON"),
        (pa.table({"payload": ["1", None]}), "queue=q", "null"),
        (pa.table({"payload": [1]}), "queue=q", "Arrow stream"),
        (pa.table({"body": ["1"]}), "queue=q", "'body'"),
        (pa.table({"partition": ["1"]}), "queue=q", "no column 'payload'"),
        (pa.table({"payload": ["1"], "priority": ["high"]}), "queue=q", "Arrow stream"),
        (pa.table({"payload": ["1"], "priority": [-1]}), "queue=q", "priority"),
        (pa.table({"payload": ["1"], "delay_seconds": [float("nan")]}), "queue=q", "delay_seconds"),
        (pa.table({"payload": ["1"], "partition": [""]}), "queue=q", "partition"),
        (pa.Table.from_arrays([pa.array(["1"]), pa.array(["2"])], ["payload", "payload"]), "queue=q", "two columns"),
        (pa.table({"payload": ["1"]}), "", "queue"),
        (pa.table({"payload": ["1"]}), "queue=q&partition=p", "'partition'"),
    ],
)
def test_stream_that_cannot_be_pushed(native: NativeApi, table: Any, query: str, told: str) -> None:
    status, answer = push(native, table, query)
    assert (status, answer["code"]) == (400, "bad_input")
    assert told in answer["error"]
    assert native.ask("list_queues") == []


def test_stream_with_offsets_that_lie_is_refused(native: NativeApi) -> None:
    """Buffers come from outside: what they point at is looked at before anything is read through them."""
    lying = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\xff\xff\xff\x0f\x02\0\0\0"), pa.py_buffer(b"12"))
    status, answer = push(native, pa.Table.from_arrays([lying], ["payload"]))
    assert (status, answer["code"]) == (400, "bad_input")


def test_arrow_requests_without_pyarrow_name_the_extra(native: NativeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    native.push("q", 1)
    body = write_arrow(pa.table({"payload": ["1"]}))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    claim = native.raw("/v1/claim", b'{"queue":"q"}', accept=ARROW)
    table = native.http.get("/v1/tables/groups", headers={"accept": ARROW})
    pushed = native.raw("/v1/push?queue=q", body, **{"content-type": ARROW})
    assert [(a.status_code, a.json()["code"]) for a in (claim, table, pushed)] == [
        (406, "not_acceptable"),
        (406, "not_acceptable"),
        (415, "unsupported_media_type"),
    ]
    assert "ackwise[arrow]" in claim.json()["error"]
    assert native.rows("leases") == []
