"""`GET /messages`: the newest messages over all queues, with filters. `DELETE` removes dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocols.queen.queen_api import QueenApi

BOTH = pytest.mark.parametrize("mode", ["seed", "upstream"])


def listed(queen: QueenApi, **query: Any) -> list[Any]:
    return [message["data"] for message in queen.get("/api/v1/messages", **query)["messages"]]


def fill(queen: QueenApi) -> None:
    """Six messages in turn: a0 b1 a2 b3 ..., two minutes apart, in two partitions of two queues."""
    for n in range(6):
        queue = "ab"[n % 2]
        queen.push(queue, f"{queue}{n}", partition="eu" if n < 3 else "us")
        queen.clock.advance(120)


def test_messages_of_all_queues_are_listed_newest_first(queen: QueenApi) -> None:
    fill(queen)
    assert listed(queen) == ["b5", "a4", "b3", "a2", "b1", "a0"]
    assert listed(queen, limit=2, offset=1) == ["a4", "b3"]
    assert listed(queen, queue="a") == ["a4", "a2", "a0"]
    assert listed(queen, queue="a", partition="us") == ["a4"]
    assert listed(queen, queue="none") == []


def test_messages_pushed_together_are_listed_newest_first(queen: QueenApi) -> None:
    queen.push("q", *range(300))
    assert listed(queen, limit=3) == [299, 298, 297]
    assert listed(queen, limit=1000) == list(reversed(range(300)))
    assert listed(queen, limit=100, offset=290) == list(reversed(range(10)))


def test_messages_of_a_time_include_the_last_minute(queen: QueenApi) -> None:
    fill(queen)
    times = {m["data"]: m["createdAt"] for m in queen.get("/api/v1/messages")["messages"]}
    assert listed(queen, **{"from": times["a2"]}) == ["b5", "a4", "b3", "a2"]
    assert listed(queen, to=times["b1"]) == ["b1", "a0"]
    assert listed(queen, **{"from": times["b1"], "to": times["b3"]}) == ["b3", "a2", "b1"]
    status, answer = queen.call("GET", "/api/v1/messages", **{"from": times["b3"], "to": times["b1"]})
    assert (status, answer["error"]) == (400, "from must not be after to")


def test_messages_are_filtered_by_status(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=0)
    queen.push("q", *range(5), partition="p")
    for status in ("completed", "dlq"):
        (message,) = queen.pop("q", batch=1)
        queen.ack(message, status)
    queen.pop("q", batch=1)
    by_status = {name: listed(queen, status=name) for name in ("pending", "processing", "completed", "dead_letter")}
    assert by_status == {"pending": [4, 3], "processing": [2], "completed": [0], "dead_letter": [1]}
    queen.clock.advance(1000)
    assert listed(queen, status="processing") == []
    code, answer = queen.call("GET", "/api/v1/messages", status="lost")
    assert (code, answer["error"][:21]) == (400, "status must be one of")


def test_listed_message_has_its_fields(queen: QueenApi) -> None:
    body = {"queue": "q", "namespace": "ns", "task": "t", "options": {}}
    assert queen.call("POST", "/api/v1/configure", body)[0] == 200
    (pushed,) = queen.push("q", {"n": 1}, partition="p")
    queen.pop("q", batch=1)
    answer = queen.get("/api/v1/messages", ns="ns", task="t")
    assert (answer["total"], answer["truncated"]) == (1, False)
    assert answer["mode"] == {"hasQueueMode": True, "busGroupsCount": 0, "type": "queue"}
    (message,) = answer["messages"]
    assert message["transactionId"] == pushed["transaction_id"]
    assert message["partitionId"] == pushed["partition_id"]
    assert (message["queuePath"], message["status"], message["queueStatus"]) == ("q/p", "processing", "processing")
    assert (message["data"], message["payload"], message["isEncrypted"]) == ({"n": 1}, {"n": 1}, False)
    assert message["leaseExpiresAt"] > message["createdAt"]
    one = queen.get(f"/api/v1/messages/{message['partitionId']}/{message['transactionId']}")
    assert {name: one[name] for name in message if name != "payloadAvailable"} == {
        name: value for name, value in message.items() if name != "payloadAvailable"
    }
    (short,) = queen.get("/api/v1/status/queues/q/messages")
    assert (short["id"], short["status"], "data" in short) == (message["id"], "processing", False)


@BOTH
def test_bad_numbers_of_a_message_list_are_refused(queen: QueenApi) -> None:
    queen.push("q", 1)
    for query in ({"limit": "0"}, {"limit": "1001"}, {"offset": "-1"}, {"offset": "x"}):
        assert queen.call("GET", "/api/v1/messages", **query)[0] == (400 if queen.seed else 200)
    assert queen.call("GET", "/api/v1/messages", to="yesterday")[0] == 400


def test_list_beyond_its_bound_says_truncated(queen: QueenApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackwise.engine.reads.newest.MOST_SCANNED", 2)
    for n in range(5):
        queen.push("q", n)
    answer = queen.get("/api/v1/messages", status="completed")
    assert (answer["messages"], answer["truncated"]) == ([], True)


def test_list_beyond_its_bytes_says_truncated(queen: QueenApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackwise.core.validation.ANSWER_BYTES", 10_000)
    queen.push("q", *(f"{n}{'x' * 2000}" for n in range(5)))
    answer = queen.get("/api/v1/messages")
    assert ([message["data"][0] for message in answer["messages"]], answer["truncated"]) == (["4", "3", "2"], True)
    assert [text[0] for text in listed(queen, offset=3)] == ["1", "0"]


@BOTH
def test_delete_of_a_message_removes_its_dead_letters(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=0)
    queen.push("q", 1)
    (message,) = queen.pop("q", batch=1)
    path = f"/api/v1/messages/{message['partitionId']}/{message['transactionId']}"
    names = {name: message[name] for name in ("partitionId", "transactionId")}
    status, answer = queen.call("DELETE", path)
    assert status == (200 if queen.seed else 404)
    assert {name: answer[name] for name in (*names, "success", "error")} == {
        **names, "success": False, "error": "Message not found",
    }  # fmt: skip
    queen.ack(message, "dlq")
    status, answer = queen.call("DELETE", path)
    assert (status, answer["success"]) == (200, True)
    assert queen.dead("q") == []
