"""Answers that must be true: wrong leases, dropped messages, replays, errors, members, cursors."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from ackwise.broker import AsyncBroker
from ackwise.core.answers import Handed
from ackwise.core.commands import Claim
from tests.broker.watched import Errand
from tests.protocols.queen.queen_api import Message, QueenApi, bodies, eventually, named

GROUPS = "/api/v1/consumer-groups"
in_upstream_mode = pytest.mark.parametrize("mode", ["upstream"])
in_both_modes = pytest.mark.parametrize("mode", ["seed", "upstream"])


def shown(queen: QueenApi, message: Message) -> Message:
    found: Message = queen.get(f"/api/v1/messages/{message['partitionId']}/{message['transactionId']}")
    return found


# leases


@in_both_modes
def test_wrong_lease_in_a_named_group_is_invalid(queen: QueenApi) -> None:
    queen.push("q", 1)
    (message,) = queen.pop("q", "workers", batch=1)
    for wrong in ("L99-12345678", "no lease at all", message["leaseId"] + "0"):
        for group in ({}, {"consumerGroup": None}, {"consumerGroup": "workers"}):
            answer = queen.ack({**message, "leaseId": wrong}, **group)
            assert (answer["success"], answer["message"]) == (False, "invalid_lease"), (wrong, group)
    assert queen.ack(message)["message"] == "acknowledged"


def test_wrong_lease_of_an_unknown_message_is_not_found(queen: QueenApi) -> None:
    queen.push("q", 1)
    (message,) = queen.pop("q", "workers")
    answer = queen.ack({**message, "transactionId": "another", "leaseId": "L99-12345678"})
    assert answer["message"] == "not_found"


# dropped messages


@in_both_modes
def test_last_failure_without_dead_letters_is_dropped(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=0, deadLetterQueue=False, dlqAfterMaxRetries=False)
    queen.push("q", 1)
    (message,) = queen.pop("q", batch=1)
    answer = queen.nack(message)
    assert (answer["success"], answer["message"]) == (True, "failed_dropped")
    assert (answer["dlq"], answer["dropped"]) == (False, True)
    assert queen.dead("q") == []
    found = shown(queen, message)
    assert [group["state"] for group in found["consumerGroups"]] == ["dropped"]
    assert (found["status"], found["queueStatus"]) == ("dropped", "dropped")
    rows = queen.get("/v1/tables/messages", queue="q", group="__QUEUE_MODE__")["rows"]
    assert [row["state"] for row in rows] == ["dropped"]
    assert queen.pop("q", batch=1) == []


@in_both_modes
def test_message_dropped_in_a_named_group_is_shown_so(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=0, deadLetterQueue=False, dlqAfterMaxRetries=False)
    queen.push("q", 1, 2)
    others = queen.pop("q", "h", batch=2)
    (first,) = queen.pop("q", "g", batch=1)
    queen.nack(first)
    assert shown(queen, first)["status"] == "pending"  # for the other group
    (second,) = queen.pop("q", "g", batch=1)
    for message in (second, *others):
        queen.ack(message)
    assert [shown(queen, message)["status"] for message in (first, second)] == ["dropped", "completed"]


def test_expired_lease_without_dead_letters_is_dropped(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=1, deadLetterQueue=False, dlqAfterMaxRetries=False)
    queen.push("q", 1, 2)
    (message,) = queen.pop("q")
    queen.clock.advance(300)
    assert bodies(queen.pop("q")) == [2]
    assert shown(queen, message)["status"] == "dropped"


def test_acked_message_is_not_dropped(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=0, deadLetterQueue=False, dlqAfterMaxRetries=False)
    queen.push("q", 1, 2, 3)
    first, second, third = queen.pop("q", batch=3)
    answers = [queen.ack(first), queen.nack(second), queen.ack(third)]
    assert [answer["dropped"] for answer in answers] == [False, True, False]
    assert [shown(queen, row)["status"] for row in (first, second, third)] == ["completed", "dropped", "completed"]
    queen.call("POST", f"{GROUPS}/__QUEUE_MODE__/queues/q/seek", {"timestamp": "2020-01-01T00:00:00Z"})
    assert shown(queen, second)["status"] == "pending"


def test_transaction_that_drops_says_so(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=0, deadLetterQueue=False, dlqAfterMaxRetries=False)
    queen.push("q", 1)
    (message,) = queen.pop("q")
    operation = {"type": "ack", **named(message, status="failed")}
    _, answer = queen.call("POST", "/api/v1/transaction", {"operations": [operation]})
    assert [(result["dlq"], result["dropped"]) for result in answer["results"]] == [(False, True)]


# dead letters


@in_both_modes
def test_replay_of_a_duplicate_keeps_the_dead_letter(queen: QueenApi) -> None:
    queen.push("q", "poison")
    (message,) = queen.pop("q", batch=1)
    queen.ack(message, "dlq", error="no")
    (letter,) = queen.dlq("q")["messages"]
    queen.push("q", "thief", transactionId=f"dlq:{letter['id']}")
    _, answer = queen.call("POST", f"/api/v1/dlq/{letter['id']}/replay", {})
    assert (answer["result"], answer["dlqRowRemoved"]) == ("duplicate", False)
    assert queen.dead("q") == ["poison"]
    _, moved = queen.call("POST", f"/api/v1/dlq/{letter['id']}/replay", {"partition": "other"})
    assert (moved["result"], moved["dlqRowRemoved"]) == ("moved", True)
    assert queen.dead("q") == []


# the text of a failure


@in_both_modes
def test_error_of_a_nack_is_on_the_message_at_once(queen: QueenApi) -> None:
    queen.push("q", 1)
    (message,) = queen.pop("q", batch=1)
    assert shown(queen, message)["errorMessage"] is None
    assert queen.nack(message, "no stock")["message"] == "failed_retry"
    found = shown(queen, message)
    assert (found["errorMessage"], found["retryCount"]) == ("no stock", 1)
    (again,) = queen.pop("q", batch=1)
    assert shown(queen, again)["errorMessage"] == "no stock"


# members


def members(queen: QueenApi) -> dict[str, int]:
    return {group["name"]: group["members"] for group in queen.get(GROUPS, shape="object")["groups"]}


def test_twelve_pops_of_one_host_are_one_member(queen: QueenApi) -> None:
    for number in range(12):
        queen.push("q", number, partition=f"p{number}")
    for _ in range(12):
        assert queen.http.get("/api/v1/pop/queue/q?consumerGroup=g", headers={"connection": "close"}).status_code == 200
    assert members(queen) == {"g": 1}


def test_pops_by_namespace_of_one_host_are_one_member(queen: QueenApi) -> None:
    for number in range(6):
        queen.push("shop.orders", number, partition=f"p{number}")
        queen.push("shop.bills", number, partition=f"p{number}")
    for _ in range(12):
        assert queen.http.get("/api/v1/pop?namespace=shop&consumerGroup=g").status_code == 200
    assert members(queen) == {"g": 1}
    assert [row["members"] for row in queen.get(GROUPS, shape="array")] == [1, 1]


def test_consumers_that_name_themselves_are_members(queen: QueenApi) -> None:
    queen.push("q", 1)
    queen.push("r", 1)
    for queue in ("q", "r"):
        queen.pop(queue, "g", clientId="a")
        queen.http.get(f"/api/v1/pop/queue/{queue}?consumerGroup=g", headers={"x-client-id": "b"})
    assert members(queen) == {"g": 2}
    assert [row["members"] for row in queen.get(GROUPS, shape="array")] == [2, 2]


def test_pop_that_waits_is_one_claim_and_shows_a_member(queen: QueenApi, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    claim = AsyncBroker.claim

    def noted(broker: AsyncBroker, command: Claim, wait: float = 0.0, **more: Any) -> Awaitable[Handed]:
        waits.append(wait)
        return claim(broker, command, wait, **more)

    monkeypatch.setattr(AsyncBroker, "claim", noted)
    queen.push("q", 1)
    assert bodies(queen.pop("q", "g", clientId="a")) == [1]
    poll = Errand(lambda: queen.pop("q", "g", clientId="b", wait="true", timeout=60_000))
    eventually(lambda: members(queen) == {"g": 2})
    queen.push("q", 2, partition="another")
    assert bodies(poll.result()) == [2]
    assert waits == [0.0, 60.0]


# cursors


def test_nack_moves_the_cursor_fields(queen: QueenApi) -> None:
    queen.push("q", 1, 2, 3)
    first, second, _ = queen.pop("q", "g", batch=3)
    queen.clock.advance(1)
    queen.ack(first)
    queen.clock.advance(1)
    queen.nack(second)
    (row,) = queen.group("g", "q")
    assert (row["lastConsumedId"], row["totalMessagesConsumed"], row["ackedCount"]) == (second["id"], 2, 2)
    assert row["lastConsumedCreatedAt"] == second["createdAt"]
    assert row["lastConsumedAt"] == "2023-11-14T22:13:22.000000Z"


def test_release_moves_no_cursor_field(queen: QueenApi) -> None:
    queen.push("q", 1, 2)
    first, second = queen.pop("q", "g", batch=2)
    queen.ack(first)
    queen.ack(second, "retry")
    (row,) = queen.group("g", "q")
    assert (row["lastConsumedId"], row["totalMessagesConsumed"]) == (first["id"], 1)


@in_upstream_mode
def test_nack_in_upstream_mode_moves_no_cursor(queen: QueenApi) -> None:
    queen.push("q", 1, 2)
    first, second = queen.pop("q", "g", batch=2)
    queen.ack(first)
    queen.nack(second)
    (row,) = queen.group("g", "q")
    assert (row["lastConsumedId"], row["totalMessagesConsumed"]) == (first["id"], 1)


# upstream's column


@in_upstream_mode
@pytest.mark.parametrize("value", ["0", "-5", "soon", "nan"])
def test_upstream_odd_lease_time_is_the_queues(queen: QueenApi, value: str) -> None:
    queen.configure("q", leaseTime=100)
    queen.push("q", 1)
    queen.pop("q", "g", leaseSeconds=value)
    (row,) = queen.group("g", "q")
    assert row["leaseExpiresAt"] == "2023-11-14T22:15:00.000000Z"


@in_upstream_mode
def test_upstream_odd_start_is_ignored(queen: QueenApi) -> None:
    queen.push("q", 1)
    assert bodies(queen.pop("q", "g", subscriptionFrom="yesterday", subscriptionMode="zzz")) == [1]


@in_upstream_mode
@pytest.mark.parametrize("value", ["0", "-1"])
def test_upstream_no_partitions_is_no_cap(queen: QueenApi, value: str) -> None:
    for number in range(70):
        queen.push("q", number, partition=f"p{number:02}")
    assert len(queen.pop("q", batch=100, partitions=value)) == 70


@in_upstream_mode
def test_upstream_pop_without_batch_takes_200(queen: QueenApi) -> None:
    queen.push("q", *range(201))
    assert len(queen.pop("q")) == 200


@in_upstream_mode
def test_upstream_lease_depends_on_what_made_the_queue(queen: QueenApi) -> None:
    def lease(queue: str) -> Any:
        return queen.get(f"/api/v1/resources/queues/{queue}")["options"]["leaseTime"]

    queen.push("pushed", 1)
    queen.configure("configured")
    operations = [{"type": "push", "items": [{"queue": "moved", "payload": 1}]}]
    queen.call("POST", "/api/v1/transaction", {"operations": operations})
    assert [lease(queue) for queue in ("pushed", "configured", "moved")] == [60, 300, 60]


@in_both_modes
def test_transaction_with_a_repeated_id_answers_duplicate(queen: QueenApi) -> None:
    item = {"queue": "q", "payload": 1, "transactionId": "t"}
    other = {"queue": "q", "payload": 2, "transactionId": "u"}
    operations = [{"type": "push", "items": [item, other, item]}]
    _, answer = queen.call("POST", "/api/v1/transaction", {"operations": operations})
    if queen.seed:
        assert (answer["success"], answer["reason"]) == (False, "duplicate")
        return
    assert answer["success"] is True
    assert [result["duplicate"] for result in answer["results"]] == [False, False, True]
    assert answer["results"][0]["messageId"] == answer["results"][2]["messageId"]
    assert bodies(queen.pop("q")) == [1, 2]
    _, again = queen.call("POST", "/api/v1/transaction", {"operations": operations})
    assert (again["success"], again["reason"]) == (False, "duplicate")


@in_upstream_mode
def test_upstream_options_at_top_level_are_taken(queen: QueenApi) -> None:
    status, answer = queen.call("POST", "/api/v1/configure", {"queue": "q", "leaseTime": 7, "namespace": "n"})
    assert (status, answer["options"]["leaseTime"], answer["namespace"]) == (200, 7, "n")


@in_upstream_mode
def test_upstream_tags_inside_options_are_taken(queen: QueenApi) -> None:
    asked = {"queue": "q", "options": {"namespace": "n", "task": "t", "leaseTime": 9}}
    answer = queen.call("POST", "/api/v1/configure", asked).body
    assert (answer["namespace"], answer["task"], answer["options"]["leaseTime"]) == ("n", "t", 9)


@in_both_modes
def test_groups_have_the_shape_of_the_mode(queen: QueenApi) -> None:
    for queue in ("q", "r"):
        queen.push(queue, 1)
        queen.pop(queue, "g")
    bare = queen.get(GROUPS, shape="array")
    assert [(row["name"], row["queueName"], row["topics"]) for row in bare] == [("g", "q", ["q"]), ("g", "r", ["r"])]
    whole = queen.get(GROUPS, shape="object")
    assert [(row["name"], row["topics"]) for row in whole["groups"]] == [("g", ["q", "r"])]
    assert queen.get(GROUPS) == (whole if queen.seed else bare)
    assert queen.call("GET", GROUPS, shape="heap").status == 400


@in_both_modes
def test_subscription_of_an_unknown_group_updates_no_row(queen: QueenApi) -> None:
    status, answer = queen.call("POST", f"{GROUPS}/ghost/subscription", {"subscriptionTimestamp": "now"})
    assert status == (404 if queen.seed else 200)
    assert queen.seed or answer["rowsUpdated"] == 0


@in_both_modes
def test_options_of_an_unknown_path_answers_by_mode(queen: QueenApi) -> None:
    assert queen.call("OPTIONS", "/nowhere").status == (404 if queen.seed else 204)
