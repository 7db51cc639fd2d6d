"""`POST /api/v1/configure`: options are laid over those that are stored, and told back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.protocols.queen.queen_api import QueenApi, bodies

SENT_BY_EVERY_CLIENT = {
    "leaseTime": 300,
    "retryLimit": 3,
    "priority": 0,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "maxSize": 0,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "encryptionEnabled": False,
}
KEPT_BUT_NOT_ACTED_UPON = {"priority": 7, "maxSize": 1000, "ttl": 3600}


in_both_modes = pytest.mark.parametrize("mode", ["seed", "upstream"])


def options(queen: QueenApi, queue: str = "orders") -> dict[str, Any]:
    found: dict[str, Any] = queen.get(f"/api/v1/resources/queues/{queue}")["options"]
    return found


@in_both_modes
def test_queue_is_made_with_its_default_partition(queen: QueenApi) -> None:
    body = {"queue": "orders", "namespace": "shop", "task": "checkout", "options": SENT_BY_EVERY_CLIENT}
    status, answer = queen.call("POST", "/api/v1/configure", body)
    assert status == 200
    assert (answer["configured"], answer["queue"]) == (True, "orders")
    assert (answer["namespace"], answer["task"]) == ("shop", "checkout")
    assert {name: answer["options"][name] for name in SENT_BY_EVERY_CLIENT} == SENT_BY_EVERY_CLIENT
    assert {
        "ttl",
        "retryDelay",
        "deadLetterQueue",
        "dlqAfterMaxRetries",
        "retentionEnabled",
        "maxWaitTimeSeconds",
    } <= set(answer["options"])
    assert UUID(answer["queueId"]).version == 7
    assert queen.call("POST", "/api/v1/configure", {"queue": "orders"}).body["queueId"] == answer["queueId"]
    (pushed,) = queen.push("orders", 1)
    assert pushed["partition_id"] == answer["partitionId"]
    (partition,) = queen.get("/api/v1/resources/queues/orders")["partitions"]
    assert (partition["name"], partition["id"]) == ("Default", answer["partitionId"])


def test_missing_option_keeps_its_value_and_null_resets_it(queen: QueenApi) -> None:
    queen.configure("orders", leaseTime=60, retryLimit=5, **KEPT_BUT_NOT_ACTED_UPON)
    queen.configure("orders", retryLimit=8)
    assert options(queen)["leaseTime"] == 60
    assert options(queen)["retryLimit"] == 8
    assert {name: options(queen)[name] for name in KEPT_BUT_NOT_ACTED_UPON} == KEPT_BUT_NOT_ACTED_UPON
    answer = queen.configure("orders", leaseTime=None, maxSize=None)
    assert answer["options"] == options(queen)
    assert (answer["options"]["leaseTime"], answer["options"]["maxSize"]) == (300, 0)
    assert (answer["options"]["retryLimit"], answer["options"]["priority"]) == (8, 7)


def test_replace_starts_from_the_defaults(queen: QueenApi) -> None:
    fresh = queen.configure("fresh")["options"]
    queen.configure("orders", leaseTime=60, retryLimit=5, **KEPT_BUT_NOT_ACTED_UPON)
    body = {"queue": "orders", "mode": "replace", "options": {"retryLimit": 4}}
    assert queen.call("POST", "/api/v1/configure", body).body["options"] == {**fresh, "retryLimit": 4}


@in_both_modes
def test_queue_keeps_the_rules_of_its_mode(queen: QueenApi) -> None:
    """Failure number `retryLimit` is final as the seed counts, the next one as upstream does."""
    queen.configure("orders", leaseTime=60)
    queen.call("POST", "/api/v1/configure", {"queue": "orders", "mode": "replace", "options": {"retryLimit": 1}})
    queen.push("orders", 1)
    queen.nack(queen.pop("orders")[0])
    assert queen.dlq("orders")["total"] == (1 if queen.seed else 0)
    for message in queen.pop("orders"):
        queen.nack(message)
    assert queen.dlq("orders")["total"] == 1


def test_options_that_belong_together_are_read_together(queen: QueenApi) -> None:
    """Each flag alone keeps dead letters on; retention waits for its switch, whichever call turns it."""
    queen.configure("orders", deadLetterQueue=False, retryLimit=0)
    queen.push("orders", 1)
    queen.nack(queen.pop("orders")[0])
    assert queen.dlq("orders")["total"] == 1
    queen.configure("orders", dlqAfterMaxRetries=False)
    queen.push("orders", 2)
    queen.nack(queen.pop("orders")[0])
    assert queen.dlq("orders")["total"] == 1
    answer = queen.configure("orders", deadLetterQueue=True)
    assert (answer["options"]["deadLetterQueue"], answer["options"]["dlqAfterMaxRetries"]) == (True, False)
    queen.push("orders", 3)
    queen.nack(queen.pop("orders")[0])
    assert queen.dlq("orders")["total"] == 2


def test_lease_lasts_as_configured_and_a_delay_holds_back(queen: QueenApi) -> None:
    queen.configure("orders", leaseTime=10, delayedProcessing=60)
    queen.push("orders", 1)
    assert queen.pop("orders") == []
    queen.clock.advance(60)
    assert bodies(queen.pop("orders")) == [1]
    queen.clock.advance(9.999)
    assert queen.pop("orders") == []
    queen.clock.advance(0.001)
    assert bodies(queen.pop("orders")) == [1]


def test_configure_keeps_stored_messages_and_partitions(queen: QueenApi) -> None:
    queen.push("orders", 1, 2, partition="p")
    queen.pop("orders", "g")
    queen.configure("orders", leaseTime=30)
    assert bodies(queen.pop("orders", "h", batch=5)) == [1, 2]
    detail = queen.get("/api/v1/resources/queues/orders")
    assert [partition["name"] for partition in detail["partitions"]] == ["Default", "p"]


def test_namespace_and_task_count_only_as_text(queen: QueenApi) -> None:
    body = {"queue": "orders", "namespace": 5, "task": None}
    answer = queen.call("POST", "/api/v1/configure", body).body
    assert (answer["namespace"], answer["task"]) == (None, None)
    queen.call("POST", "/api/v1/configure", {"queue": "orders", "namespace": "shop"})
    assert queen.configure("orders")["namespace"] == "shop"


@in_both_modes
def test_encryption_is_refused_and_makes_no_queue(queen: QueenApi) -> None:
    for asked in (
        {"options": {"encryptionEnabled": True}},
        {"encryptionEnabled": True},
        {"encryptionEnabled": True, "options": {}},
        {"encryptionEnabled": True, "options": {"encryptionEnabled": False, "leaseTime": 5}},
    ):
        status, answer = queen.call("POST", "/api/v1/configure", {"queue": "secrets", **asked})
        assert (status, answer["code"]) == (409, "encryption_not_configured"), asked
    assert queen.get("/api/v1/resources/queues")["queues"] == []
    assert queen.configure("secrets", encryptionEnabled=False)["options"]["encryptionEnabled"] is False


def test_bad_input_changes_nothing(queen: QueenApi) -> None:
    queen.configure("orders", leaseTime=60)
    before = queen.get("/api/v1/resources/queues")
    bad: list[Any] = [
        {},
        {"queue": None},
        {"queue": 5},
        {"queue": ""},
        {"queue": "x" * 300},
        {"queue": "orders", "options": []},
        {"queue": "orders", "mode": "sometimes"},
        {"queue": "new", "options": {"leaseTime": -1}},
        {"queue": "new", "options": {"leaseTime": "long"}},
        {"queue": "new", "options": {"leaseTime": 10**9}},
        {"queue": "new", "options": {"retryLimit": 1.5}},
        {"queue": "new", "options": {"retryLimit": True}},
        {"queue": "new", "options": {"encryptionEnabled": "yes"}},
        {"queue": "new", "options": {"leaseTime": 5, "retryLimit": "three"}},
        [],
        "orders",
    ]
    for body in bad:
        status, answer = queen.call("POST", "/api/v1/configure", body)
        assert (status, set(answer)) == (400, {"error", "code"}), body
    for content in (b"", b"{", b"\xff\xfe", b'{"queue": "\xff"}', b"[" * 100_000):
        assert queen.http.post("/api/v1/configure", content=content).status_code == 400, content[:20]
    assert queen.call("POST", "/api/v1/configure", {"queue": None}).body["error"] == "queue is required"
    assert queen.get("/api/v1/resources/queues") == before
    assert options(queen)["leaseTime"] == 60
