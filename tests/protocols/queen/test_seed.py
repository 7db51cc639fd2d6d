"""The seed document, line by line and in its order: what it says happens here, with the calls and answers it shows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.protocols.queen.queen_api import QueenApi, bodies, eventually, named, unleased

INVALID_LEASE = {"success": False, "message": "invalid_lease", "error": "Lease validation failed"}
FIVE_MINUTES = 300
NOWHERE = "00000000-0000-7000-8000-000000000000"


# Core concepts


def test_ack_completes_advances_and_releases(queen: QueenApi) -> None:
    queen.push("orders", {"n": 1}, {"n": 2})
    (message,) = queen.pop("orders", "workers")
    answer = queen.ack(message)
    assert (answer["success"], answer["leaseReleased"]) == (True, True)
    (partition,) = queen.group("workers", "orders")
    assert (partition["lastConsumedId"], partition["leaseActive"]) == (message["id"], False)
    assert bodies(queen.pop("orders", "workers")) == [{"n": 2}]


def test_acked_message_is_kept_as_retention_says(queen: QueenApi) -> None:
    queen.push("orders", {"n": 1})
    (message,) = queen.pop("orders")
    queen.ack(message)
    kept = queen.get(f"/api/v1/messages/{message['partitionId']}/{message['transactionId']}")
    assert (kept["payload"], kept["status"]) == ({"n": 1}, "completed")


def test_nack_counts_and_makes_the_message_available_again(queen: QueenApi) -> None:
    queen.push("orders", {"n": 1})
    (message,) = queen.pop("orders")
    assert queen.nack(message)["message"] == "failed_retry"
    (again,) = queen.pop("orders")
    assert (again["transactionId"], again["retryCount"]) == (message["transactionId"], 1)


def test_crash_before_the_ack_loses_nothing(queen: QueenApi) -> None:
    queen.push("orders", {"n": 1})
    queen.pop("orders")
    queen.clock.advance(FIVE_MINUTES - 0.001)
    assert queen.pop("orders") == []
    queen.clock.advance(0.001)
    assert bodies(queen.pop("orders")) == [{"n": 1}]


# ACK models


def test_manual_ack_is_the_default(queen: QueenApi) -> None:
    queen.push("orders", "good", "bad")
    good, bad = queen.pop("orders", "processors", batch=2)
    assert queen.ack(good, consumerGroup="processors")["success"] is True
    assert queen.nack(bad, "invalid data", consumerGroup="processors")["success"] is True
    assert bodies(queen.pop("orders", "processors", batch=2)) == ["bad"]


def test_auto_ack_settles_on_delivery(queen: QueenApi) -> None:
    queen.push("events", *range(12))
    status, body = queen.call("GET", "/api/v1/pop/queue/events?autoAck=true&batch=10")
    assert (status, bodies(body["messages"]), body["leaseId"]) == (200, list(range(10)), "")
    assert bodies(queen.pop("events", batch=10)) == [10, 11]


def test_auto_ack_knows_no_retry_and_no_dead_letters(queen: QueenApi) -> None:
    queen.push("events", 1)
    (message,) = queen.pop("events", autoAck="true")
    assert queen.nack({**message, "leaseId": None})["success"] is False
    queen.clock.advance(10 * FIVE_MINUTES)
    assert (queen.pop("events"), queen.dlq("events")["total"]) == ([], 0)


# Required parameters


@pytest.mark.parametrize("path", ["/api/v1/ack", "/api/v1/transaction"])
def test_partition_id_is_mandatory(queen: QueenApi, path: str) -> None:
    queen.push("orders", 1)
    (message,) = queen.pop("orders")
    body = {"transactionId": message["transactionId"], "leaseId": message["leaseId"], "status": "completed"}
    if path.endswith("transaction"):
        body = {"operations": [{"type": "ack", **body}]}
    status, answer = queen.call("POST", path, body)
    assert status == 400
    assert answer["error"] == "partitionId is required to ensure message uniqueness"
    assert queen.ack(message)["success"] is True


def test_partition_id_is_mandatory_in_a_batch(queen: QueenApi) -> None:
    queen.push("orders", 1, 2)
    first, second = queen.pop("orders", batch=2)
    entries = [named(first, status="completed"), {"transactionId": second["transactionId"]}]
    status, answer = queen.call("POST", "/api/v1/ack/batch", {"acknowledgments": entries})
    assert (status, "to ensure message uniqueness" in answer["error"]) == (400, True)
    assert queen.ack(first)["noop"] is False


def test_lease_and_group_are_optional(queen: QueenApi) -> None:
    queen.push("orders", 1)
    (message,) = queen.pop("orders")
    status, answer = queen.call("POST", "/api/v1/ack", unleased(message))
    assert (status, answer["success"], answer["message"]) == (200, True, "acknowledged")


def test_group_is_named_or_known_by_its_lease(queen: QueenApi) -> None:
    queen.push("orders", 1, 2)
    by_lease, by_name = queen.pop("orders", "workers", batch=2)
    assert queen.ack(by_lease)["success"] is True
    assert queen.call("POST", "/api/v1/ack", unleased(by_name)).body["message"] == "not_found"
    assert queen.call("POST", "/api/v1/ack", unleased(by_name, consumerGroup="workers")).body["success"] is True


def test_partition_tells_equal_transaction_ids_apart(queen: QueenApi) -> None:
    for partition in ("A", "B"):
        queen.push("orders", partition, partition=partition, transactionId="tx-123")
    found = {message["partition"]: message for message in queen.pop("orders", batch=10, partitions=2)}
    assert queen.ack(found["A"])["success"] is True
    queen.clock.advance(FIVE_MINUTES)
    assert bodies(queen.pop("orders", batch=10, partitions=2)) == ["B"]


# ACK flow and NACK flow


def test_ack_flow_answers_as_documented(queen: QueenApi) -> None:
    (pushed,) = queen.push("orders", {"orderId": "12345"}, transactionId="tx-123")
    (message,) = queen.pop("orders", "workers")
    assert message["messageId"] == pushed["message_id"]
    assert (message["transactionId"], message["partitionId"]) == ("tx-123", pushed["partition_id"])
    assert message["data"] == {"orderId": "12345"}
    body = {
        "transactionId": "tx-123",
        "partitionId": message["partitionId"],
        "leaseId": message["leaseId"],
        "status": "completed",
    }
    status, answer = queen.call("POST", "/api/v1/ack", body)
    assert status == 200
    assert (answer["success"], answer["message"]) == (True, "acknowledged")
    (partition,) = queen.group("workers", "orders")
    assert (partition["lastConsumedId"], partition["totalConsumed"]) == (message["messageId"], 1)
    assert partition["lastConsumedAt"].startswith("2023-11-14T22:13:20")


def test_nack_flow_ends_in_the_dead_letters(queen: QueenApi) -> None:
    queen.push("orders", {"orderId": "12345"}, transactionId="tx-123")
    told = []
    while found := queen.pop("orders"):
        body = {**named(found[0]), "status": "failed", "error": "Processing failed: invalid data"}
        status, answer = queen.call("POST", "/api/v1/ack", body)
        assert (status, answer["success"]) == (200, True)
        told.append((answer["message"], answer["retryCount"]))
    assert told == [("failed_retry", 1), ("failed_retry", 2), ("failed_dlq", 3)]
    (letter,) = queen.dlq("orders")["messages"]
    assert (letter["errorMessage"], letter["retryCount"]) == ("Processing failed: invalid data", 3)


# Batch ACK


def test_batch_across_partitions(queen: QueenApi) -> None:
    for partition in ("1", "2", "3"):
        queen.push("orders", partition, partition=partition)
    messages = queen.pop("orders", "workers", batch=10, partitions=3)
    first, second, third = sorted(messages, key=lambda message: str(message["data"]))
    answers = queen.ack_batch(
        unleased(first, status="completed"),
        unleased(second, status="completed"),
        unleased(third, status="failed", error="Validation error"),
        consumerGroup="workers",
    )
    assert [(answer["success"], answer["message"]) for answer in answers] == [
        (True, "acknowledged"),
        (True, "acknowledged"),
        (True, "failed_retry"),
    ]
    (again,) = queen.pop("orders", "workers", batch=10, partitions=3)
    assert (again["data"], again["retryCount"]) == ("3", 1)


@pytest.mark.parametrize("refused", ["unknown", "stale"])
def test_batch_succeeds_or_fails_as_a_whole(queen: QueenApi, refused: str) -> None:
    queen.push("orders", 1, 2)
    first, second = queen.pop("orders", batch=2)
    wrong = {"transactionId": "tx-never"} if refused == "unknown" else {"leaseId": first["partitionId"]}
    answers = queen.ack_batch(named(first, status="completed"), {**named(second, status="failed"), **wrong})
    assert [answer["success"] for answer in answers] == [False, False]
    assert answers[0]["message"] == "rolled_back"
    assert answers[1]["message"] == {"unknown": "not_found", "stale": "invalid_lease"}[refused]
    answers = queen.ack_batch(named(first, status="completed"), named(second, status="completed"))
    assert [(answer["success"], answer["noop"]) for answer in answers] == [(True, False)] * 2


def test_settled_message_in_a_batch_does_not_roll_it_back(queen: QueenApi) -> None:
    queen.push("orders", 1, 2)
    first, second = queen.pop("orders", batch=2)
    queen.ack(first)
    answers = queen.ack_batch(named(first, status="completed"), named(second, status="completed"))
    assert [(answer["success"], answer["message"], answer["noop"]) for answer in answers] == [
        (False, "not_found", True),
        (True, "acknowledged", False),
    ]


def test_batch_may_ask_for_a_verdict_each(queen: QueenApi) -> None:
    queen.push("orders", 1, 2)
    first, second = queen.pop("orders", batch=2)
    entries = (named(first, status="completed"), named(second, transactionId="tx-never", status="completed"))
    assert [answer["success"] for answer in queen.ack_batch(*entries, atomic=False)] == [True, False]


def test_message_named_twice_in_a_batch_is_settled_once(queen: QueenApi) -> None:
    queen.push("orders", 1, 2)
    first, second = queen.pop("orders", "workers", batch=2)
    answers = queen.ack_batch(named(first), named(first), named(second))
    assert [(answer["message"], answer["noop"]) for answer in answers] == [
        ("acknowledged", False),
        ("not_found", True),
        ("acknowledged", False),
    ]
    (partition,) = queen.group("workers", "orders")
    assert partition["totalConsumed"] == 2


def test_batch_of_another_group_is_refused(queen: QueenApi) -> None:
    queen.push("orders", 1)
    (message,) = queen.pop("orders", "workers")
    (answer,) = queen.ack_batch(named(message), consumerGroup="others")
    assert (answer["success"], answer["message"]) == (False, "not_found")
    assert queen.ack(message)["success"] is True


# Lease management


def test_life_of_a_lease(queen: QueenApi) -> None:
    queen.push("orders", 1)
    (message,) = queen.pop("orders")
    queen.clock.advance(FIVE_MINUTES - 1)
    assert queen.call("POST", f"/api/v1/lease/{message['leaseId']}/extend", {"seconds": 60}).body["success"] is True
    queen.clock.advance(59)
    assert queen.ack(message)["leaseReleased"] is True
    queen.push("orders", 2)
    assert bodies(queen.pop("orders")) == [2]


def test_expired_lease_is_invalid(queen: QueenApi) -> None:
    queen.push("orders", 1)
    (message,) = queen.pop("orders")
    queen.clock.advance(FIVE_MINUTES)
    assert INVALID_LEASE.items() <= queen.call("POST", "/api/v1/ack", named(message)).body.items()


def test_released_lease_is_invalid(queen: QueenApi) -> None:
    """By a nack: the message is not settled and not held."""
    queen.push("orders", 1)
    (message,) = queen.pop("orders")
    queen.nack(message)
    assert INVALID_LEASE.items() <= queen.call("POST", "/api/v1/ack", named(message)).body.items()


def test_wrong_lease_is_invalid(queen: QueenApi) -> None:
    queen.push("orders", 1)
    (message,) = queen.pop("orders")
    for wrong in ("no-such-lease", message["partitionId"]):
        answer = queen.call("POST", "/api/v1/ack", named(message, leaseId=wrong)).body
        assert INVALID_LEASE.items() <= answer.items()
    assert queen.ack(message)["success"] is True


def test_reassigned_partition_is_an_invalid_lease(queen: QueenApi) -> None:
    queen.push("orders", 1)
    (lost,) = queen.pop("orders")
    queen.clock.advance(FIVE_MINUTES)
    (mine,) = queen.pop("orders")
    for status in ("completed", "failed", "retry", "dlq"):
        assert queen.ack(lost, status)["message"] == "invalid_lease"
    answer = queen.ack(mine)
    assert (answer["success"], answer["retryCount"]) == (True, 1)


def test_lease_is_released_with_the_last_of_ten_acks(queen: QueenApi) -> None:
    queen.push("orders", *range(11))
    batch = queen.pop("orders", batch=10)
    released = []
    for message in batch:
        assert queen.pop("orders", batch=10) == []
        released.append(queen.ack(message)["leaseReleased"])
    assert released == [False] * 9 + [True]
    assert bodies(queen.pop("orders", batch=10)) == [10]


def test_lease_is_renewed_by_its_id(queen: QueenApi) -> None:
    queen.push("tasks", 1)
    (message,) = queen.pop("tasks", leaseSeconds=30)
    status, answer = queen.call("POST", f"/api/v1/lease/{message['leaseId']}/extend", {"seconds": 60})
    assert (status, answer["success"], answer["renewed"]) == (200, True, 1)
    assert answer["newExpiresAt"].startswith("2023-11-14T22:14:20")
    queen.clock.advance(59.9)
    assert queen.pop("tasks") == []
    queen.clock.advance(0.1)
    assert bodies(queen.pop("tasks")) == [1]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"seconds": null}'])
def test_renewal_without_a_time_is_a_minute(queen: QueenApi, content: bytes) -> None:
    queen.push("tasks", 1)
    (message,) = queen.pop("tasks", leaseSeconds=30)
    answer = queen.http.post(f"/api/v1/lease/{message['leaseId']}/extend", content=content)
    assert (answer.status_code, answer.json()["newExpiresAt"][:19]) == (200, "2023-11-14T22:14:20")


def test_renewal_never_shortens_and_never_revives(queen: QueenApi) -> None:
    queen.push("tasks", 1)
    (message,) = queen.pop("tasks")
    path = f"/api/v1/lease/{message['leaseId']}/extend"
    assert queen.call("POST", path, {"seconds": 1}).body["newExpiresAt"].startswith("2023-11-14T22:18:20")
    queen.clock.advance(FIVE_MINUTES)
    answer = queen.call("POST", path, {"seconds": 60})
    assert (answer.status, answer.body["success"], answer.body["renewed"]) == (200, False, 0)
    assert bodies(queen.pop("tasks")) == [1]


# Consumer groups


def test_queue_mode_is_a_group_too(queen: QueenApi) -> None:
    queen.push("tasks", 1)
    status, body = queen.call("GET", "/api/v1/pop/queue/tasks")
    assert (status, body["consumerGroup"]) == (200, "__QUEUE_MODE__")


def test_message_in_queue_mode_is_consumed_once(queen: QueenApi) -> None:
    for partition in ("a", "b"):
        queen.push("tasks", *(f"{partition}{n}" for n in range(3)), partition=partition)
    seen = []
    while found := [message for _ in range(2) for message in queen.pop("tasks")]:
        seen += bodies(found)
        assert {queen.ack(message)["success"] for message in found} == {True}
    assert sorted(seen) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_consumers_go_round_the_partitions(queen: QueenApi) -> None:
    for partition in ("a", "b", "c"):
        queen.push("tasks", *range(2), partition=partition)
    seen = []
    for _ in range(6):
        (message,) = queen.pop("tasks")
        queen.ack(message)
        seen.append(message["partition"])
    assert sorted(seen[:3]) == sorted(seen[3:]) == ["a", "b", "c"]


def test_named_groups_each_get_everything(queen: QueenApi) -> None:
    queen.push("user-events", *range(3))
    for group in ("email-sender", "analytics"):
        found = queen.pop("user-events", group, batch=10)
        assert bodies(found) == [0, 1, 2]
        assert {answer["success"] for answer in queen.ack_batch(*map(named, found), consumerGroup=group)} == {True}
    assert queen.pop("user-events", "email-sender") == []


def test_each_group_has_its_own_cursor(queen: QueenApi) -> None:
    queen.push("user-events", *range(1, 102))
    for group, upto in (("email-sender", 100), ("analytics", 98)):
        found = queen.pop("user-events", group, batch=upto)
        queen.ack_batch(*map(named, found), consumerGroup=group)
        (partition,) = queen.group(group, "user-events")
        assert (partition["partition"], partition["totalConsumed"]) == ("Default", upto)
        assert partition["lastConsumedId"] == found[-1]["id"]
    assert bodies(queen.pop("user-events", "email-sender", batch=10)) == [101]
    assert bodies(queen.pop("user-events", "analytics", batch=10)) == [99, 100, 101]


# Dead letter queue


def test_three_failures_are_a_dead_letter(queen: QueenApi) -> None:
    queen.configure("orders", retryLimit=3, dlqAfterMaxRetries=True)
    queen.push("orders", {"orderId": "12345"})
    for failures in range(3):
        assert queen.dlq("orders")["total"] == 0
        (message,) = queen.pop("orders")
        assert message["retryCount"] == failures
        queen.nack(message)
    assert (queen.dlq("orders")["total"], queen.pop("orders")) == (1, [])


def test_hour_of_waiting_is_a_dead_letter(quick_sweeps: None, queen: QueenApi) -> None:
    queen.configure("time-sensitive", maxWaitTimeSeconds=3600, deadLetterQueue=True)
    queen.push("time-sensitive", {"n": 1})
    queen.clock.advance(1)
    queen.push("time-sensitive", {"n": 2})
    queen.clock.advance(3599)
    assert eventually(lambda: queen.dlq("time-sensitive")["messages"])[0]["data"] == {"n": 1}
    assert bodies(queen.pop("time-sensitive", batch=10)) == [{"n": 2}]


def test_shape_of_a_dead_letter(queen: QueenApi) -> None:
    queen.clock.set(round(datetime(2024, 1, 15, 10, 30, tzinfo=UTC).timestamp() * 1e6))
    queen.configure("orders", retryLimit=3, leaseTime=600)
    (pushed,) = queen.push("orders", {"orderId": "12345"}, transactionId="tx-123")
    queen.clock.advance(300)
    while found := queen.pop("orders", "workers"):
        queen.nack(found[0], "Processing failed: invalid data")
    status, body = queen.call("GET", "/api/v1/dlq?queue=orders&limit=50")
    assert status == 200
    assert {key: body[key] for key in ("total", "limit", "offset")} == {"total": 1, "limit": 50, "offset": 0}
    (letter,) = body["messages"]
    shown = {
        "messageId": pushed["message_id"],
        "partitionId": pushed["partition_id"],
        "transactionId": "tx-123",
        "consumerGroup": "workers",
        "errorMessage": "Processing failed: invalid data",
        "retryCount": 3,
        "queueName": "orders",
        "data": {"orderId": "12345"},
    }
    assert {key: letter[key] for key in shown} == shown
    assert letter["id"] not in (letter["messageId"], letter["partitionId"], "")
    assert letter["originalCreatedAt"].startswith("2024-01-15T10:30:00")
    assert letter["movedToDlqAt"].startswith("2024-01-15T10:35:00")


def test_dead_letters_are_asked_for_by_group_and_by_day(queen: QueenApi) -> None:
    queen.configure("orders", retryLimit=0)
    days = (
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2024, 2, 1, tzinfo=UTC),
    )
    for number, day in enumerate(days):
        queen.clock.set(round(day.timestamp() * 1e6))
        queen.push("orders", number)
        (message,) = queen.pop("orders", "workers")
        queen.nack(message)
    assert queen.get("/api/v1/dlq?queue=orders&consumerGroup=workers")["total"] == 3
    assert queen.get("/api/v1/dlq?queue=orders&consumerGroup=others")["total"] == 0
    january = queen.get("/api/v1/dlq?queue=orders&from=2024-01-01&to=2024-01-31")
    assert (january["total"], sorted(bodies(january["messages"]))) == (2, [0, 1])


def test_dead_letter_is_reprocessed_by_pushing_it_again(queen: QueenApi) -> None:
    queen.configure("orders", retryLimit=0)
    queen.push("orders", {"orderId": 1}, partition="p", transactionId="tx-1")
    (message,) = queen.pop("orders")
    queen.nack(message)
    (letter,) = queen.dlq("orders")["messages"]
    item = {
        "queue": "orders",
        "partition": letter["partition"],
        "data": letter["data"],
        "transactionId": "reprocess-" + letter["transactionId"],
    }
    assert queen.call("POST", "/api/v1/push", {"items": [item]}).body[0]["status"] == "queued"
    (again,) = queen.pop("orders")
    assert (again["data"], again["transactionId"], again["partition"]) == ({"orderId": 1}, "reprocess-tx-1", "p")


# Common errors


def test_second_ack_finds_nothing_to_do(queen: QueenApi) -> None:
    queen.push("orders", 1)
    (message,) = queen.pop("orders")
    queen.ack(message)
    for body in (named(message), unleased(message)):
        status, answer = queen.call("POST", "/api/v1/ack", body)
        assert (status, answer["success"], answer["message"], answer["noop"]) == (200, False, "not_found", True)
    assert queen.pop("orders") == []


def test_wrong_transaction_id_is_not_found(queen: QueenApi) -> None:
    queen.push("orders", 1)
    (message,) = queen.pop("orders")
    answer = queen.ack({**message, "transactionId": "tx-never"})
    assert (answer["success"], answer["message"], answer["noop"]) == (False, "not_found", False)
    answer = queen.ack({**message, "partitionId": NOWHERE})
    assert (answer["success"], answer["message"]) == (False, "not_found")
    assert queen.ack(message)["success"] is True


def test_message_removed_by_retention_is_not_found(quick_sweeps: None, queen: QueenApi) -> None:
    queen.configure("orders", retentionEnabled=True, completedRetentionSeconds=600)
    queen.push("orders", 1)
    (message,) = queen.pop("orders")
    queen.ack(message)
    queen.clock.advance(601)
    place = f"/api/v1/messages/{message['partitionId']}/{message['transactionId']}"
    eventually(lambda: queen.call("GET", place).status == 404)
    answer = queen.ack(message)
    assert (answer["success"], answer["message"]) == (False, "not_found")


# Advanced patterns


def test_ack_and_push_are_one_transaction(queen: QueenApi) -> None:
    queen.push("input", {"n": 1})
    (message,) = queen.pop("input")
    operations = [
        {"type": "ack", **named(message), "status": "completed"},
        {"type": "push", "items": [{"queue": "next-step", "partition": "workflow-1", "payload": {"processed": True}}]},
    ]
    status, answer = queen.call("POST", "/api/v1/transaction", {"operations": operations})
    assert (status, answer["success"]) == (200, True)
    (out,) = queen.pop("next-step")
    assert (out["data"], out["partition"]) == ({"processed": True}, "workflow-1")
    queen.clock.advance(FIVE_MINUTES)
    assert queen.pop("input") == []


def test_failed_transaction_changes_nothing(queen: QueenApi) -> None:
    queen.push("input", {"n": 1})
    (message,) = queen.pop("input")
    push = {"type": "push", "items": [{"queue": "next-step", "payload": 1}]}
    for wrong in ({"transactionId": "tx-never"}, {"leaseId": "no-such-lease"}):
        ack = {"type": "ack", **named(message), **wrong, "status": "completed"}
        status, answer = queen.call("POST", "/api/v1/transaction", {"operations": [push, ack]})
        assert (status, answer["success"], answer["results"]) == (200, False, [])
    assert queen.pop("next-step") == []
    assert queen.ack(message)["success"] is True


def test_message_is_acked_once_it_was_moved_aside(queen: QueenApi) -> None:
    """The conditional pattern: ack, nack, or put it straight among the dead letters."""
    queen.push("tasks", "good", "flaky", "hopeless")
    good, flaky, hopeless = queen.pop("tasks", batch=3)
    assert queen.ack(good)["message"] == "acknowledged"
    assert queen.nack(flaky, "try again")["message"] == "failed_retry"
    assert queen.ack(hopeless, "dlq", error="never")["message"] == "failed_dlq"
    assert bodies(queen.pop("tasks", batch=3)) == ["flaky"]
    assert [letter["errorMessage"] for letter in queen.dlq("tasks")["messages"]] == ["never"]


def test_rate_limited_message_is_pushed_back_with_a_delay(queen: QueenApi) -> None:
    queen.push("rate-limited", {"n": 1}, transactionId="tx-1")
    (message,) = queen.pop("rate-limited")
    item = {
        "queue": "rate-limited",
        "partition": message["partition"],
        "data": message["data"],
        "transactionId": message["transactionId"] + "-retry",
        "delaySeconds": 60,
    }
    assert queen.call("POST", "/api/v1/push", {"items": [item]}).status == 201
    assert queen.ack(message)["success"] is True
    queen.clock.advance(59.999)
    assert queen.pop("rate-limited") == []
    queen.clock.advance(0.001)
    (again,) = queen.pop("rate-limited")
    assert (again["data"], again["transactionId"]) == ({"n": 1}, "tx-1-retry")


# Monitoring


def test_lag_of_a_group(queen: QueenApi) -> None:
    queen.push("orders", *range(10))
    found = queen.pop("orders", "workers", batch=4)
    queen.ack_batch(*map(named, found[:3]), consumerGroup="workers")
    queen.clock.advance(120)
    groups = queen.get("/api/v1/consumer-groups")["groups"]
    (shown,) = [group for group in groups if group["name"] == "workers"]
    wanted = {
        "name": "workers",
        "topics": ["orders"],
        "members": 1,
        "totalLag": 7,
        "maxTimeLag": 120,
        "state": "Stable",
    }
    assert {key: shown[key] for key in wanted} == wanted


def test_group_far_behind_is_lagging(queen: QueenApi) -> None:
    queen.push("orders", 1)
    queen.pop("orders", "workers")
    queen.clock.advance(301)
    (shown,) = [group for group in queen.get("/api/v1/consumer-groups")["groups"] if group["name"] == "workers"]
    assert (shown["totalLag"], shown["state"]) == (1, "Lagging")
