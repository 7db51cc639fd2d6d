"""`GET /api/v1/messages/:partitionId/:transactionId`: one message and how every group stands to it."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.clock import wall_now
from ackwise.wire import timestamps
from tests.protocols.queen.queen_api import Message, QueenApi

NEVER = "0190b1f0-0000-7000-8000-000000000000"
TRACE = "11111111-2222-4333-8444-555555555555"


def pushed(queen: QueenApi, payload: Any = 1, **more: Any) -> Message:
    (result,) = queen.push("orders", payload, transactionId="tx-1", **more)
    return result


def show(queen: QueenApi, message: Message) -> dict[str, Any]:
    found: dict[str, Any] = queen.get(f"/api/v1/messages/{message['partition_id']}/{message['transaction_id']}")
    return found


def test_message_without_consumer(queen: QueenApi) -> None:
    queen.configure("orders", leaseTime=60, retryLimit=5, priority=4)
    message = pushed(queen, {"n": [1, "ü", None]}, partition="p", traceId=TRACE)
    shown = show(queen, message)
    expected = {
        "id": message["message_id"],
        "transactionId": "tx-1",
        "partitionId": message["partition_id"],
        "queuePath": "orders/p",
        "queue": "orders",
        "partition": "p",
        "namespace": None,
        "task": None,
        "status": "pending",
        "queueStatus": None,
        "busStatus": {"consumedBy": 0, "totalGroups": 0},
        "traceId": TRACE,
        "producerSub": None,
        "queuePriority": 4,
        "createdAt": "2023-11-14T22:13:20.000000Z",
        "leaseExpiresAt": None,
        "payload": {"n": [1, "ü", None]},
        "isEncrypted": False,
        "errorMessage": None,
        "retryCount": 0,
        "queueConfig": {"leaseTime": 60, "retryLimit": 5, "retryDelay": 0, "ttl": 0, "priority": 4},
        "consumerGroups": [],
        "mode": {"hasQueueMode": False, "busGroupsCount": 0, "type": "none"},
    }
    assert {name: shown[name] for name in expected} == expected


def test_message_in_queue_mode_shows_its_status(queen: QueenApi) -> None:
    message = pushed(queen)
    (popped,) = queen.pop("orders")
    shown = show(queen, message)
    assert (shown["status"], shown["queueStatus"]) == ("processing", "processing")
    assert shown["leaseExpiresAt"] == "2023-11-14T22:18:20.000000Z"
    queen.nack(popped)
    shown = show(queen, message)
    assert (shown["status"], shown["retryCount"], shown["leaseExpiresAt"]) == ("pending", 1, None)
    queen.ack(queen.pop("orders")[0])
    shown = show(queen, message)
    assert (shown["status"], shown["mode"]["type"]) == ("completed", "queue")
    assert shown["consumedByGroups"] == ["__QUEUE_MODE__"]


def test_lease_that_ran_out_holds_nothing(queen: QueenApi) -> None:
    message = pushed(queen)
    queen.pop("orders")
    queen.clock.advance(300)
    shown = show(queen, message)
    assert (shown["status"], shown["leaseExpiresAt"]) == ("pending", None)
    assert shown["consumerGroups"][0]["leaseExpiresAt"] is None


def test_auto_ack_leaves_one_group_that_consumed(queen: QueenApi) -> None:
    message = pushed(queen)
    queen.pop("orders", "workers", autoAck="true")
    (group,) = show(queen, message)["consumerGroups"]
    assert (group["name"], group["consumed"], group["leaseExpiresAt"]) == ("workers", True, None)


def test_message_is_completed_by_all_its_named_groups(queen: QueenApi) -> None:
    message = pushed(queen)
    queen.pop("orders", "fast", autoAck="true")
    (held,) = queen.pop("orders", "slow")
    shown = show(queen, message)
    assert (shown["status"], shown["queueStatus"], shown["mode"]["type"]) == ("pending", None, "bus")
    assert shown["busStatus"] == {"consumedBy": 1, "totalGroups": 2}
    queen.ack(held)
    assert show(queen, message)["status"] == "completed"
    queen.pop("orders")
    shown = show(queen, message)
    assert (shown["status"], shown["mode"]["type"]) == ("processing", "hybrid")


def test_dead_letter_keeps_its_error(queen: QueenApi) -> None:
    queen.configure("orders", retryLimit=2)
    message = pushed(queen)
    for _ in range(2):
        queen.nack(queen.pop("orders", "workers")[0], "no such customer", consumerGroup="workers")
    shown = show(queen, message)
    assert (shown["status"], shown["errorMessage"], shown["retryCount"]) == ("dead_letter", "no such customer", 2)
    assert shown["payload"] == 1


def test_message_that_waits_to_be_due(queen: QueenApi) -> None:
    message = pushed(queen, delaySeconds=60)
    shown = show(queen, message)
    assert (shown["status"], shown["deliverAt"]) == ("pending", "2023-11-14T22:14:20.000000Z")


def test_message_is_shown_by_its_minted_id(queen: QueenApi) -> None:
    (message,) = queen.push("orders", "minted")
    shown = show(queen, message)
    assert (shown["payload"], shown["id"]) == ("minted", message["message_id"])


def test_payloads_come_back_as_they_were_pushed(queen: QueenApi) -> None:
    payloads = ["null", "1e3", '"\\u00fc"', '{"a":1.0,"b":[]}', "12345678901234567890123", '"' + "x" * 70_000 + '"']
    for number, payload in enumerate(payloads):
        body = f'{{"items": [{{"queue": "orders", "transactionId": "tx-{number}", "payload": {payload}}}]}}'
        (message,) = queen.http.post("/api/v1/push", content=body.encode()).json()
        answer = queen.http.get(f"/api/v1/messages/{message['partition_id']}/tx-{number}")
        assert f'"payload":{payload},' in answer.text


def test_unknown_message_answers_404_and_bad_path_400(queen: QueenApi) -> None:
    message = pushed(queen)
    for path in (f"{message['partition_id']}/tx-2", f"{NEVER}/tx-1"):
        status, body = queen.call("GET", f"/api/v1/messages/{path}")
        assert (status, body) == (404, {"error": "Message not found", "code": "message_not_found"}), path
    for path in ("17/tx-1", f"{message['partition_id']}/%00", f"{NEVER}/{'x' * 600}", f"{NEVER}/%ff"):
        status, body = queen.call("GET", f"/api/v1/messages/{path}")
        assert (status, set(body)) == (400, {"error", "code"}), path
    queen.call("DELETE", "/api/v1/resources/queues/orders")
    assert queen.call("GET", f"/api/v1/messages/{message['partition_id']}/tx-1").status == 404


@pytest.mark.parametrize("step", [-3600, 86400])
def test_lease_after_a_clock_step_is_shown_by_wall_clock(queen: QueenApi, step: int) -> None:
    message = pushed(queen)
    queen.clock.step_wall(step)
    expires_at = timestamps.text(wall_now(queen.clock) + 300_000_000)
    _, popped = queen.call("GET", "/api/v1/pop/queue/orders", consumerGroup="g")
    shown = show(queen, message)
    assert (popped["leaseExpiresAt"], shown["leaseExpiresAt"]) == (expires_at, expires_at)
    queen.clock.step_wall(-step)
    later = timestamps.text(wall_now(queen.clock) + 300_000_000)
    (place,) = queen.group("g", "orders")
    assert (place["leaseExpiresAt"], place["leaseActive"]) == (later, True)
    _, extended = queen.call("POST", f"/api/v1/lease/{popped['leaseId']}/extend", {"seconds": 600})
    assert extended["newExpiresAt"] == timestamps.text(wall_now(queen.clock) + 600_000_000)
