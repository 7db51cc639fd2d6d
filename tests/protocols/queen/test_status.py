"""`/status`: throughput by bucket, counts of queues, and messages per interval."""

from __future__ import annotations

import pytest

from ackwise.clock import ManualClock
from tests.protocols.queen.queen_api import QueenApi

SIX = {"total", "pending", "processing", "completed", "failed", "deadLetter"}
START = 1_763_294_400_000_000
"""12:00 on a day, so that buckets have round times."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


def busy(queen: QueenApi) -> None:
    """Three pushes and one ack in a minute, nothing for two minutes, then one push."""
    queen.configure("q", retryLimit=1)
    queen.push("q", 1, 2, 3, partition="p")
    for status in ("completed", "failed"):
        (message,) = queen.pop("q", batch=1)
        queen.ack(message, status, error="boom 17")
    queen.clock.advance(180)
    queen.push("other", 1)


def test_liveness_needs_no_store(queen: QueenApi) -> None:
    assert queen.get("/status") == {"status": "ok", "engine": "ackwise"}


def test_status_has_null_in_buckets_without_samples(queen: QueenApi) -> None:
    busy(queen)
    status = queen.get("/api/v1/status")
    assert (status["bucketMinutes"], status["pointCount"]) == (1, len(status["throughput"]))
    assert status["pointCount"] == 61
    points = [point["ingested"] for point in status["throughput"][-4:]]
    assert points == [3, None, None, 1]
    first, second = status["throughput"][-4], status["throughput"][-3]
    assert (first["processed"], first["ackFailed"], first["dlqCount"], first["ingestedPerSecond"]) == (1, 1, 1, 0.05)
    assert (second["processed"], second["ingestedPerSecond"], second["ackFailed"]) == (None, None, None)
    assert first["timestamp"] == "2025-11-16T12:00:00.000000Z"
    assert (first["popMessages"], first["avgLagMs"], first["dbPoolSize"]) == (None, None, None)


def test_status_counts_queues_and_errors(queen: QueenApi) -> None:
    busy(queen)
    status = queen.get("/api/v1/status")
    assert [(row["name"], row["partitions"], row["totalConsumed"]) for row in status["queues"]] == [
        ("other", 1, 0),
        ("q", 2, 1),
    ]
    assert (status["messages"]["total"], status["messages"]["deadLetter"], status["messages"]["pending"]) == (4, 1, 2)
    assert status["messages"]["requests"] == {"push": None, "pop": None, "ack": None}
    assert status["errors"] == {"dbErrors": None, "ackFailed": 1, "dlqMessages": 1}
    assert status["deadLetterQueue"]["topErrors"] == [{"error": "boom 17", "count": 1}]
    assert status["workers"][0]["workerId"]
    only = queen.get("/api/v1/status", queue="other")
    assert [row["name"] for row in only["queues"]] == ["other"]
    assert [point["ingested"] for point in only["throughput"][-4:]] == [None, None, None, 1]
    assert only["messages"]["total"] == 1
    assert queen.get("/api/v1/status", namespace="none")["queues"] == []


def test_bucket_size_follows_the_window(queen: QueenApi) -> None:
    for start, minutes in (
        *(("16T11:00", 1), ("16T10:59", 5), ("16T06:00", 5), ("16T05:59", 15)),
        *(("15T12:00", 15), ("15T11:59", 60), ("09T12:00", 60), ("09T11:59", 360)),
    ):
        window = {"from": f"2025-11-{start}:00Z", "to": "2025-11-16T12:00:00Z"}
        assert queen.get("/api/v1/status", **window)["bucketMinutes"] == minutes


def test_bad_window_is_refused(queen: QueenApi) -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({"from": "2025-11-16T12:00:01Z", "to": "2025-11-16T12:00:00Z"}, "from must not be after to"),
        ({"from": "2025-10-01T00:00:00Z"}, "a window has at most 31 days"),
        ({"from": "yesterday"}, "from is not an ISO timestamp"),
    ]
    for path in ("/api/v1/status", "/api/v1/status/analytics", "/api/v1/analytics/queue-ops"):
        for query, text in cases:
            status, answer = queen.call("GET", path, **query)
            assert status == 400
            assert text in answer["error"]


def test_queues_are_listed_page_by_page(queen: QueenApi) -> None:
    for n in range(5):
        queen.push(f"q{n}", n)
    page = queen.get("/api/v1/status/queues", limit=2, offset=1)
    assert [row["name"] for row in page["queues"]] == ["q1", "q2"]
    assert page["pagination"] == {"limit": 2, "offset": 1}
    assert page["queues"][0].keys() == {"id", "name", "namespace", "task", "createdAt", "partitions", "messages"}
    assert set(page["queues"][0]["messages"]) == SIX
    assert [row["name"] for row in queen.get("/api/v1/status/queues")["queues"]] == [f"q{n}" for n in range(5)]
    assert queen.get("/api/v1/status/queues", offset=9)["queues"] == []
    assert [row["name"] for row in queen.get("/api/v1/status/queues", queue="q3")["queues"]] == ["q3"]
    assert queen.get("/api/v1/status/queues", queue="none")["queues"] == []


def test_queue_is_shown_with_its_partitions(queen: QueenApi) -> None:
    busy(queen)
    shown = queen.get("/api/v1/status/queues/q")
    assert (shown["queue"]["name"], shown["queue"]["config"]["retryLimit"]) == ("q", 1)
    assert "maxQueueSize" in shown["queue"]["config"]
    partitions = {row["name"]: row for row in shown["partitions"]}
    assert partitions["p"]["messages"] == {
        "total": 3, "pending": 1, "processing": 0, "completed": 1, "failed": 0, "deadLetter": 1,
    }  # fmt: skip
    assert shown["totals"]["total"] == shown["totals"]["messages"]["total"] == 3
    status, answer = queen.call("GET", "/api/v1/status/queues/none")
    assert (status, answer["error"]) == (404, "Queue not found")


def test_messages_are_counted_per_interval(queen: QueenApi) -> None:
    busy(queen)
    window = {"from": "2025-11-16T12:00:00Z", "to": "2025-11-16T12:05:00Z"}
    for interval, wanted in (
        ("minute", [3, None, None, 1, None, None]),
        ("hour", [4]),
        ("day", [4]),
        ("century", [4]),
    ):
        answer = queen.get("/api/v1/status/analytics", interval=interval, **window)
        assert answer["interval"] == (interval if interval != "century" else "hour")
        assert [point["messages"] for point in answer["dataPoints"]] == wanted
