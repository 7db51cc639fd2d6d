"""`/api/v1/resources/…`: what there is, in numbers that are those of now."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocols.queen.queen_api import QueenApi

RESOURCES = "/api/v1/resources"
START = "2023-11-14T22:13:20.000000Z"


def six(**given: int) -> dict[str, int]:
    return {"total": 0, "pending": 0, "processing": 0, "completed": 0, "failed": 0, "deadLetter": 0} | given


def fill(queen: QueenApi) -> None:
    """Two partitions; a group that acked one, holds two, buried one and has three to go."""
    queen.configure("orders", retryLimit=1)
    queen.push("orders", *range(5), partition="p1")
    queen.push("orders", *range(2), partition="p2")
    found = queen.pop("orders", "workers", batch=4, partitions=1)
    queen.ack(found[0], consumerGroup="workers")
    queen.ack(found[1], "dlq", error="broken", consumerGroup="workers")


def test_queues_are_listed_with_their_counts(queen: QueenApi) -> None:
    assert queen.get(f"{RESOURCES}/queues") == {"queues": []}
    fill(queen)
    queen.call("POST", "/api/v1/configure", {"queue": "other", "namespace": "shop", "task": "mail"})
    orders, other = queen.get(f"{RESOURCES}/queues")["queues"]
    assert (orders["name"], orders["namespace"], orders["createdAt"], orders["partitions"]) == (
        "orders",
        None,
        START,
        3,
    )
    assert orders["messages"] == six(total=7, pending=3, processing=2, completed=1, deadLetter=1)
    assert (other["name"], other["namespace"], other["task"]) == ("other", "shop", "mail")
    assert other["messages"] == six()
    assert queen.get(f"{RESOURCES}/queues", namespace="shop")["queues"] == [other]


def test_queue_is_shown_with_its_partitions(queen: QueenApi) -> None:
    fill(queen)
    queen.clock.advance(60)
    queen.push("orders", 5, partition="p1")
    shown = queen.get(f"{RESOURCES}/queues/orders")
    assert shown["totals"] == six(total=8, pending=4, processing=2, completed=1, deadLetter=1)
    assert shown["options"]["retryLimit"] == 1
    default, p1, p2 = shown["partitions"]
    assert (default["name"], default["stats"], default["oldestMessage"]) == ("Default", six(), None)
    assert (p1["name"], p1["stats"]) == ("p1", six(total=6, pending=2, processing=2, completed=1, deadLetter=1))
    assert (p1["createdAt"], p1["oldestMessage"], p1["newestMessage"]) == (START, START, "2023-11-14T22:14:20.000000Z")
    assert (p2["name"], p2["stats"]) == ("p2", six(total=2, pending=2))
    for one in ("total", "pending", "processing", "completed", "deadLetter"):
        assert sum(partition["stats"][one] for partition in shown["partitions"]) == shown["totals"][one]


def test_scheduled_messages_are_pending(queen: QueenApi) -> None:
    queen.push("orders", 1, delaySeconds=60)
    assert queen.get(f"{RESOURCES}/queues/orders")["totals"] == six(total=1, pending=1)
    assert queen.get(f"{RESOURCES}/queues")["queues"][0]["messages"] == six(total=1, pending=1)


def test_queue_is_deleted_with_all_that_was_in_it(queen: QueenApi) -> None:
    fill(queen)
    status, body = queen.call("DELETE", f"{RESOURCES}/queues/orders")
    assert (status, body) == (200, {"deleted": True, "existed": True, "queue": "orders"})
    assert queen.get(f"{RESOURCES}/queues") == {"queues": []}
    assert queen.get("/api/v1/consumer-groups") == {"groups": []}
    assert queen.get("/api/v1/dlq")["total"] == 0
    assert queen.call("GET", "/api/v1/pop/queue/orders").status == 204
    status, body = queen.call("DELETE", f"{RESOURCES}/queues/nowhere")
    assert (status, body) == (200, {"deleted": False, "existed": False, "queue": "nowhere"})


def test_names_are_percent_decoded(queen: QueenApi) -> None:
    queen.push("a queue/with ünïcode", 1)
    assert queen.get(f"{RESOURCES}/queues/a%20queue%2Fwith%20%C3%BCn%C3%AFcode")["totals"]["total"] == 1
    assert queen.call("DELETE", f"{RESOURCES}/queues/a%20queue%2Fwith%20%C3%BCn%C3%AFcode").body["existed"] is True


def test_depth_for_a_group(queen: QueenApi) -> None:
    fill(queen)
    shown = queen.get(f"{RESOURCES}/queues/orders/depth", group="workers")
    assert shown == {
        "queue": "orders",
        "group": "workers",
        "pending": 5,
        "partitionsPending": 2,
        "conflation": False,
        "effectivePending": 5,
        "partitions": [{"partition": "p1", "pending": 3}, {"partition": "p2", "pending": 2}],
    }
    nobody = queen.get(f"{RESOURCES}/queues/orders/depth")
    assert (nobody["group"], nobody["pending"], nobody["partitionsPending"]) == ("__QUEUE_MODE__", 7, 2)


def test_partition_list_covers_all_queues(queen: QueenApi) -> None:
    fill(queen)
    queen.push("other", 1)
    shown = queen.get(f"{RESOURCES}/partitions")["partitions"]
    assert [(one["queue"], one["name"], one["stats"]["total"]) for one in shown] == [
        ("orders", "Default", 0),
        ("orders", "p1", 5),
        ("orders", "p2", 2),
        ("other", "Default", 1),
    ]
    assert queen.get(f"{RESOURCES}/partitions", queue="other")["partitions"] == shown[3:]


def test_namespaces_and_tasks(queen: QueenApi) -> None:
    for queue in ("shop.mail", "shop.pay", "bank.mail", "plain"):
        queen.push(queue, 1, 2)
    queen.pop("shop.mail", batch=2)

    def counted(found: list[dict[str, Any]], word: str) -> dict[str, tuple[int, ...]]:
        return {
            one[word]: (one["queues"], one["partitions"], one["messages"]["total"], one["messages"]["pending"])
            for one in found
        }

    assert counted(queen.get(f"{RESOURCES}/namespaces")["namespaces"], "namespace") == {
        "bank": (1, 1, 2, 2),
        "shop": (2, 2, 4, 2),
    }
    assert counted(queen.get(f"{RESOURCES}/tasks")["tasks"], "task") == {"mail": (2, 2, 4, 2), "pay": (1, 1, 2, 2)}


@pytest.mark.parametrize(("method", "path"), [("GET", f"{RESOURCES}/overview"), ("POST", "/api/v1/stats/refresh")])
def test_overview_counts_queues_and_messages(queen: QueenApi, method: str, path: str) -> None:
    fill(queen)
    queen.clock.advance(120)
    queen.push("shop.mail", *range(30))
    queen.pop("shop.mail", autoAck="true", batch=12)
    status, shown = queen.call(method, path)
    assert status == 200
    assert (shown["queues"], shown["partitions"], shown["namespaces"], shown["tasks"]) == (2, 4, 1, 1)
    assert shown["messages"] == six(total=37, pending=21, processing=2, completed=13, deadLetter=1)
    assert shown["lag"]["time"] == {"avg": 60.0, "median": 60.0, "min": 0, "max": 120}
    assert shown["lag"]["offset"] == {"avg": 11.5, "median": 11.5, "min": 5, "max": 18}
    seconds = 60 + 20
    assert shown["throughput"] == {
        "ingestedPerSecond": round(30 / seconds, 3),
        "processedPerSecond": round(12 / seconds, 3),
    }
    assert (shown["statsAge"], shown["timestamp"]) == (0, "2023-11-14T22:15:20.000000Z")


def test_unknown_queue_answers_404_and_bad_path_400(queen: QueenApi) -> None:
    for path in ("queues/nowhere", "queues/nowhere/depth", "partitions?queue=nowhere"):
        status, body = queen.call("GET", f"{RESOURCES}/{path}")
        assert (status, body) == (404, {"error": "Queue not found", "code": "unknown_queue"}), path
    for path in (f"queues/{'x' * 300}", "queues/%00", "queues/%ff", "partitions?queue=%ff", "queues?namespace=%00"):
        status, body = queen.call("GET", f"{RESOURCES}/{path}")
        assert (status, set(body)) == (400, {"error", "code"}), path
    assert queen.call("POST", f"{RESOURCES}/queues").status == 405
    assert queen.call("GET", f"{RESOURCES}/nothing").status == 404
