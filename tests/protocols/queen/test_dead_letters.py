"""`/api/v1/dlq`: dead letters asked for, pushed again, forgotten."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.protocols.queen.queen_api import Message, QueenApi, bodies

DLQ = "/api/v1/dlq"
NEVER = "0190b1f0-0000-7000-8000-000000000000"
DAY = 24 * 3600


def bury(queen: QueenApi, *payloads: Any, queue: str = "orders", group: str = "workers", **more: Any) -> list[Message]:
    """Push these and reject each for a group; what was popped."""
    queen.push(queue, *payloads, **more)
    found = queen.pop(queue, group, batch=len(payloads))
    for message in found:
        queen.ack(message, "dlq", error=f"Validation: {message['data']}", consumerGroup=group)
    return found


def data(page: dict[str, Any]) -> list[Any]:
    return bodies(page["messages"])


# asking


def test_dead_letter_as_the_seed_shows_it(queen: QueenApi) -> None:
    queen.configure("orders", retryLimit=3, dlqAfterMaxRetries=True)
    queen.push("orders", {"orderId": "12345"}, transactionId="tx-123", traceId="11111111-2222-4333-8444-555555555555")
    for _ in range(3):
        (message,) = queen.pop("orders", "workers")
        queen.clock.advance(100)
        queen.nack(message, "Processing failed: invalid data", consumerGroup="workers")
    page = queen.get(DLQ, queue="orders", limit=50)
    assert (page["total"], page["limit"], page["offset"]) == (1, 50, 0)
    (letter,) = page["messages"]
    assert UUID(letter["id"]) != UUID(letter["messageId"])
    seed = {
        "id": letter["id"],
        "messageId": message["id"],
        "partitionId": message["partitionId"],
        "transactionId": "tx-123",
        "consumerGroup": "workers",
        "errorMessage": "Processing failed: invalid data",
        "retryCount": 3,
        "originalCreatedAt": "2023-11-14T22:13:20.000000Z",
        "movedToDlqAt": "2023-11-14T22:18:20.000000Z",
        "queueName": "orders",
        "data": {"orderId": "12345"},
    }
    assert {name: letter[name] for name in seed} == seed
    upstream = {
        "queue": "orders",
        "partition": "Default",
        "partitionName": "Default",
        "namespace": None,
        "task": None,
        "createdAt": seed["originalCreatedAt"],
        "messageCreatedAt": seed["originalCreatedAt"],
        "failedAt": seed["movedToDlqAt"],
        "producerSub": None,
        "traceId": "11111111-2222-4333-8444-555555555555",
    }
    assert {name: letter[name] for name in upstream} == upstream


def test_dead_letters_are_listed_by_queue_group_and_partition(queen: QueenApi) -> None:
    bury(queen, 1, 2, group="workers")
    bury(queen, 3, group="auditors")
    bury(queen, 4, queue="other", partition="p")
    assert sorted(data(queen.get(DLQ))) == [1, 1, 2, 4]
    assert sorted(data(queen.get(DLQ, queue="orders", consumerGroup="workers"))) == [1, 2]
    assert data(queen.get(DLQ, consumerGroup="auditors")) == [1]
    assert data(queen.get(DLQ, queue="other", partition="p")) == [4]
    assert data(queen.get(DLQ, queue="other", partition="Default")) == []
    nowhere = queen.get(DLQ, queue="nowhere")
    assert (nowhere["messages"], nowhere["total"]) == ([], 0)


def test_pages_are_newest_first_and_the_total_is_of_all(queen: QueenApi) -> None:
    for number in range(7):
        bury(queen, number)
        queen.clock.advance(1)
    pages = [queen.get(DLQ, queue="orders", limit=3, offset=offset) for offset in (0, 3, 6, 9)]
    assert [data(page) for page in pages] == [[6, 5, 4], [3, 2, 1], [0], []]
    assert {page["total"] for page in pages} == {7}
    assert [(page["limit"], page["offset"]) for page in pages] == [(3, 0), (3, 3), (3, 6), (3, 9)]
    everything = queen.get(DLQ, queue="orders")
    assert (everything["limit"], everything["offset"], len(everything["messages"])) == (100, 0, 7)
    assert data(queen.get(DLQ, queue="orders", limit=0)) == []


def test_dead_letters_are_listed_by_day_of_death(queen: QueenApi) -> None:
    """The clock starts at 2023-11-14T22:13:20Z; one dies then, one two hours later, one a day after that."""
    bury(queen, "tuesday")
    queen.clock.advance(2 * 3600)
    bury(queen, "wednesday")
    queen.clock.advance(DAY)
    bury(queen, "thursday")
    for asked, found in {
        ("2023-11-14", "2023-11-14"): ["tuesday"],
        ("2023-11-14", "2023-11-15"): ["wednesday", "tuesday"],
        ("2023-11-15", "2023-11-16"): ["thursday", "wednesday"],
        ("2023-11-16", "9999-12-31"): ["thursday"],
        ("2023-11-16", None): ["thursday"],
        (None, "2023-11-15"): ["wednesday", "tuesday"],
        ("2024-01-01", "2024-01-31"): [],
        ("2023-11-16", "2023-11-14"): [],
        ("2023-11-14T22:13:20Z", "2023-11-14T22:13:20Z"): ["tuesday"],
        ("2023-11-14T22:13:20.000001Z", "2023-11-15T00:13:19.999999Z"): [],
        ("2023-11-15T01:13:20+01:00", "2023-11-15T01:13:20+01:00"): ["wednesday"],
    }.items():
        query = {name: text for name, text in zip(("from", "to"), asked, strict=True) if text is not None}
        page = queen.get(DLQ, queue="orders", **query)
        assert (data(page), page["total"]) == (found, len(found)), asked


def test_missing_error_text_gets_a_default(queen: QueenApi) -> None:
    queen.configure("orders", retryLimit=0)
    queen.push("orders", 1)
    queen.ack(queen.pop("orders")[0], "failed")
    assert queen.dlq("orders")["messages"][0]["errorMessage"] == "Retries exhausted"


# pushed again


def test_replay_moves_the_record(queen: QueenApi) -> None:
    (dead,) = bury(queen, {"n": 1}, transactionId="t", partition="p")
    (letter,) = queen.dlq("orders")["messages"]
    status, body = queen.call("POST", f"{DLQ}/{letter['id']}/replay")
    assert status == 200
    (copy,) = queen.pop("orders", "workers")
    assert body == {
        "success": True,
        "result": "moved",
        "queue": "orders",
        "partition": "p",
        "consumerGroup": "workers",
        "dlqId": letter["id"],
        "originalTransactionId": "t",
        "replayedAs": {
            "status": "queued",
            "transaction_id": f"dlq:{letter['id']}",
            "message_id": copy["id"],
            "partition_id": dead["partitionId"],
            "queueName": "orders",
        },
        "dlqRowRemoved": True,
    }
    assert (copy["data"], copy["transactionId"], copy["retryCount"]) == ({"n": 1}, f"dlq:{letter['id']}", 0)
    assert queen.dlq("orders")["total"] == 0
    again = queen.call("POST", f"{DLQ}/{letter['id']}/replay")
    assert (again.status, again.body["code"]) == (404, "dead_letter_not_found")


def test_replay_to_another_place(queen: QueenApi) -> None:
    bury(queen, 1)
    queen.configure("repaired")
    (letter,) = queen.dlq("orders")["messages"]
    refused = queen.call("POST", f"{DLQ}/{letter['id']}/replay", {"queue": "nowhere"})
    assert (refused.status, refused.body["code"]) == (404, "unknown_queue")
    body = queen.call("POST", f"{DLQ}/{letter['id']}/replay", {"queue": "repaired", "partition": "p"}).body
    assert (body["queue"], body["partition"]) == ("repaired", "p")
    (copy,) = queen.pop("repaired", "g")
    assert (copy["data"], copy["partition"]) == (1, "p")
    assert (queen.pop("orders", "workers"), queen.dlq("orders")["total"]) == ([], 0)


def test_retry_by_partition_and_transaction_id(queen: QueenApi) -> None:
    for group in ("workers", "auditors"):
        queen.pop("orders", group)
    (dead,) = bury(queen, {"n": 1}, transactionId="t")
    queen.clock.advance(1)
    (same,) = queen.pop("orders", "auditors")
    queen.ack(same, "dlq", error="mine too", consumerGroup="auditors")
    path = f"/api/v1/messages/{dead['partitionId']}/t/retry"
    assert queen.call("POST", path, {"consumerGroup": "nobody"}).status == 404
    assert queen.call("POST", path).body["consumerGroup"] == "auditors"
    assert queen.call("POST", path, {"consumerGroup": "workers"}).body["result"] == "moved"
    assert queen.dlq("orders")["total"] == 0
    assert bodies(queen.pop("orders", "workers", batch=5)) == [{"n": 1}, {"n": 1}]
    refused = queen.call("POST", path)
    assert (refused.status, refused.body["code"]) == (404, "dead_letter_not_found")


def test_reprocessing_as_the_seed_does_it(queen: QueenApi) -> None:
    bury(queen, "a", "b")
    for letter in queen.dlq("orders")["messages"]:
        queen.push(
            "orders",
            letter["data"],
            partition=letter["partition"],
            transactionId="reprocess-" + letter["transactionId"],
        )
    assert sorted(bodies(queen.pop("orders", "workers", batch=5))) == ["a", "b"]
    assert queen.dlq("orders")["total"] == 2


# forgotten


def test_purge_removes_dead_letters_by_queue_and_group(queen: QueenApi) -> None:
    bury(queen, 1, 2)
    bury(queen, 3, group="auditors")
    bury(queen, 4, queue="other")
    status, body = queen.call("DELETE", DLQ, queue="orders", consumerGroup="auditors")
    assert (status, body["success"], body["deleted"]) == (200, True, 1)
    assert queen.call("DELETE", DLQ, queue="orders").body["deleted"] == 2
    assert queen.call("DELETE", DLQ, queue="orders").body["deleted"] == 0
    assert data(queen.get(DLQ)) == [4]


def test_dead_letter_is_deleted_by_its_id(queen: QueenApi) -> None:
    bury(queen, 1, 2)
    first, second = queen.dlq("orders")["messages"]
    body = queen.call("DELETE", f"{DLQ}/{first['id']}").body
    assert body == {"success": True, "deleted": 1, "dlqId": first["id"]}
    assert [letter["id"] for letter in queen.dlq("orders")["messages"]] == [second["id"]]
    assert queen.call("DELETE", f"{DLQ}/{first['id']}").status == 404


# bad input

REFUSED = [
    ("GET", f"{DLQ}?from=yesterday", 400),
    ("GET", f"{DLQ}?to=2024-13-45", 400),
    ("GET", f"{DLQ}?from=2024-01-01T25:00", 400),
    ("GET", f"{DLQ}?to=1969-01-01", 400),
    ("GET", f"{DLQ}?queue=%00", 400),
    ("GET", f"{DLQ}?queue=%ff", 400),
    ("POST", f"{DLQ}/17/replay", 400),
    ("POST", f"{DLQ}/{NEVER}/replay", 404),
    ("DELETE", DLQ, 400),
    ("DELETE", f"{DLQ}?queue=nowhere", 404),
    ("DELETE", f"{DLQ}/17", 400),
    ("DELETE", f"{DLQ}/{NEVER}", 404),
    ("POST", "/api/v1/messages/17/t/retry", 400),
    ("POST", f"/api/v1/messages/{NEVER}/t/retry", 404),
    ("POST", f"/api/v1/messages/{NEVER}/{'x' * 600}/retry", 400),
    ("PUT", DLQ, 405),
]
BAD_BODIES = (b"[]", b"{", b'{"queue": 5}', b'{"queue": "orders", "partition": ["p"]}', b'{"queue": "\xff"}', b'"x"')


def test_bad_requests_change_nothing(queen: QueenApi) -> None:
    bury(queen, 1)
    before = queen.get(DLQ)
    for method, path, status in REFUSED:
        answer = queen.call(method, path)
        assert (answer.status, set(answer.body)) == (status, {"error", "code"}), (method, path)
    for content in BAD_BODIES:
        refused = queen.http.post(f"{DLQ}/{before['messages'][0]['id']}/replay", content=content)
        assert (refused.status_code, set(refused.json())) == (400, {"error", "code"}), content
    assert queen.get(DLQ) == before
    assert queen.pop("orders", "workers") == []
