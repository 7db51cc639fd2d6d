"""Traces: notes that consumers attach to messages, by message and by name, until retention removes the message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocols.queen.queen_api import Message, QueenApi, eventually

BOTH = pytest.mark.parametrize("mode", ["seed", "upstream"])
NOWHERE = "019a3c51-6a00-7d21-9c44-0e5a77b1c001"


def traced(queen: QueenApi, message: Message, data: Any = 1, **more: Any) -> str:
    body = {"partitionId": message["partition_id"], "transactionId": message["transaction_id"], "data": data, **more}
    status, answer = queen.call("POST", "/api/v1/traces", body)
    assert (status, answer["success"]) == (201, True), answer
    trace_id: str = answer["traceId"]
    return trace_id


def traces_of(queen: QueenApi, message: Message) -> list[Message]:
    path = f"/api/v1/traces/{message['partition_id']}/{message['transaction_id']}"
    rows: list[Message] = queen.get(path)["traces"]
    return rows


def test_traces_of_a_message_are_listed_oldest_first(queen: QueenApi) -> None:
    (message,) = queen.push("q", {"n": 1})
    first = traced(queen, message, {"step": 1}, traceNames=["order", "eu"], eventType="step", consumerGroup="g")
    queen.clock.advance(1)
    second = traced(queen, message, None, traceNames="order")
    rows = traces_of(queen, message)
    assert [row["id"] for row in rows] == [first, second]
    assert [row["trace_names"] for row in rows] == [["eu", "order"], ["order"]]
    assert (rows[0]["event_type"], rows[0]["data"], rows[0]["consumer_group"]) == ("step", {"step": 1}, "g")
    assert (rows[1]["event_type"], rows[1]["data"], rows[1]["consumer_group"]) == ("info", None, "__QUEUE_MODE__")
    assert rows[0]["worker_id"]
    assert rows[0]["created_at"] < rows[1]["created_at"]


@BOTH
def test_traces_of_a_name_are_paged_newest_first(queen: QueenApi) -> None:
    messages = queen.push("q", *range(3), partition="p")
    for message in messages:
        traced(queen, message, message["index"], traceNames=["walk"])
    page = queen.get("/api/v1/traces/by-name/walk", limit=2, offset=1)
    assert (page["total"], page["pagination"]) == (3, {"limit": 2, "offset": 1})
    assert [row["data"] for row in page["traces"]] == [1, 0]
    row = page["traces"][0]
    assert (row["queue_name"], row["partition_name"]) == ("q", "p")
    assert (row["transaction_id"], row["partition_id"]) == (messages[1]["transaction_id"], messages[1]["partition_id"])
    assert row["message_payload"] == (1 if queen.seed else None)
    assert queen.get("/api/v1/traces/by-name/none") == {
        "traces": [], "total": 0, "pagination": {"limit": 100, "offset": 0},
    }  # fmt: skip


def test_trace_names_are_listed_with_the_latest_first(queen: QueenApi) -> None:
    first, second = queen.push("q", 1, 2)
    for message, names in ((first, ["old"]), (first, ["both"]), (second, ["both", "new"]), (second, ["both"])):
        traced(queen, message, traceNames=names)
        queen.clock.advance(1)
    listed = queen.get("/api/v1/traces/names", limit=2)
    assert (listed["total"], listed["pagination"]) == (3, {"limit": 2, "offset": 0})
    assert [(row["trace_name"], row["trace_count"], row["message_count"]) for row in listed["trace_names"]] == [
        ("both", 3, 2),
        ("new", 1, 1),
    ]
    assert listed["trace_names"][0]["last_seen"].endswith("Z")


@BOTH
def test_trace_of_an_unknown_message_is_stored_upstream_only(queen: QueenApi) -> None:
    body = {"partitionId": NOWHERE, "transactionId": "t", "data": 1, "traceNames": ["n"]}
    status, answer = queen.call("POST", "/api/v1/traces", body)
    assert queen.get(f"/api/v1/traces/{NOWHERE}/none") == {"traces": []}
    if queen.seed:
        assert (status, answer["success"], answer["error"]) == (404, False, "Message not found")
        return
    assert (status, answer["success"]) == (201, True)
    (row,) = queen.get("/api/v1/traces/by-name/n")["traces"]
    assert (row["queue_name"], row["partition_name"], row["message_payload"]) == (None, None, None)


def test_trace_without_what_it_needs_is_refused(queen: QueenApi) -> None:
    ids, both = "transactionId and partitionId are required", {"transactionId": "t", "partitionId": NOWHERE}
    cases: list[tuple[Any, str]] = [
        ({"data": 1}, ids),
        ({"transactionId": "t", "data": 1}, ids),
        ({**both, "transactionId": 5, "data": 1}, ids),
        (both, "data is required"),
        ({**both, "partitionId": "no uuid", "data": 1}, "partitionId must be a UUID"),
    ]
    for body, text in cases:
        status, answer = queen.call("POST", "/api/v1/traces", body)
        assert status == 400
        assert text in answer["error"]


def test_trace_beyond_its_bounds_is_refused(queen: QueenApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackwise.engine.traces.MOST_OF_MESSAGE", 1)
    (message,) = queen.push("q", 1)
    names = {"partitionId": message["partition_id"], "transactionId": message["transaction_id"]}
    for more, code in (
        ({"data": "x" * 70_000}, 400),
        ({"data": 1, "traceNames": [f"n{n}" for n in range(21)]}, 400),
        ({"data": 1, "traceNames": ["n" * 300]}, 400),
        ({"data": 1, "traceNames": 7}, 201),
        ({"data": 1}, 409),
    ):
        status, answer = queen.call("POST", "/api/v1/traces", {**names, **more})
        assert status == code, answer
    assert len(traces_of(queen, message)) == 1
    for query in ({"limit": "0"}, {"limit": "x"}, {"offset": "-1"}):
        assert queen.call("GET", "/api/v1/traces/names", **query)[0] == 400


@pytest.mark.usefixtures("quick_sweeps")
def test_traces_of_pruned_messages_are_removed(queen: QueenApi) -> None:
    queen.configure("q", retentionEnabled=True, retentionSeconds=60)
    (old,) = queen.push("q", "old")
    traced(queen, old, traceNames=["story"])
    queen.clock.advance(50)
    (new,) = queen.push("q", "new")
    traced(queen, new, traceNames=["story"])
    queen.clock.advance(20)
    eventually(lambda: traces_of(queen, old) == [])
    assert len(traces_of(queen, new)) == 1
    assert queen.get("/api/v1/traces/by-name/story")["total"] == 1


@pytest.mark.usefixtures("quick_sweeps")
def test_traces_without_a_message_go_after_a_month(queen: QueenApi) -> None:
    (message,) = queen.push("q", 1)
    (later,) = queen.push("other", 1, delaySeconds=400 * 24 * 3600)
    traced(queen, message, traceNames=["story"])
    traced(queen, later, traceNames=["later"])
    assert queen.call("DELETE", "/api/v1/resources/queues/q")[1]["deleted"]
    eventually(lambda: queen.get("/api/v1/traces/names")["total"] == 1)
    assert len(traces_of(queen, later)) == 1
    queen.clock.advance(32 * 24 * 3600)
    eventually(lambda: queen.get("/api/v1/traces/names")["total"] == 0)
