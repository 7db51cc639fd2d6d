"""`/analytics`: series from the ledger. What the ledger does not count is null or empty."""

from __future__ import annotations

from typing import Any

import pytest

from ackwise.clock import ManualClock
from ackwise.protocols.queen.analytics import signature_of
from tests.protocols.queen.queen_api import QueenApi

START = 1_763_294_400_000_000
"""12:00 on a day, so that buckets have round times."""
BASE = "/api/v1/analytics"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


def busy(queen: QueenApi) -> None:
    body = {"queue": "q", "namespace": "shop", "task": "pay", "options": {"retryLimit": 1}}
    assert queen.call("POST", "/api/v1/configure", body)[0] == 200
    queen.push("q", 1, 2, 3)
    for status in ("completed", "failed"):
        (message,) = queen.pop("q", batch=1)
        queen.ack(message, status, error="order 4711 of 2025-11-16T12:00:00Z failed")
    queen.clock.advance(120)
    queen.push("q", 4)
    queen.push("other", 1, partition="a")
    queen.push("other", 1, partition="b")


def test_queue_operations_are_listed_by_bucket(queen: QueenApi) -> None:
    busy(queen)
    answer = queen.get(f"{BASE}/queue-ops")
    assert answer["queues"] == ["other", "q"]
    rows = [(row["bucket"][11:16], row["queueName"], row["pushMessages"], row["ackSuccess"], row["ackFailed"])
            for row in answer["series"]]  # fmt: skip
    assert rows == [("12:00", "q", 3, 1, 1), ("12:02", "other", 2, 0, 0), ("12:02", "q", 1, 0, 0)]
    row = answer["series"][0]
    assert (row["pushPerSecond"], row["ackPerSecond"]) == (0.05, 0.033)
    assert (row["popMessages"], row["parkedCount"], row["avgLagMs"]) == (None, None, None)
    only = queen.get(f"{BASE}/queue-ops", queue="other")
    assert [row["queueName"] for row in only["series"]] == ["other"]


def test_figures_without_a_ledger_are_empty(queen: QueenApi) -> None:
    busy(queen)
    assert queen.get(f"{BASE}/queue-lag") == []
    parked = queen.get(f"{BASE}/queue-parked-replicas")
    assert parked["series"] == []
    assert parked["replicas"][0].keys() == {"hostname", "workerId"}
    retention = queen.get(f"{BASE}/retention", groupBy="queue")
    assert (retention["series"], retention["rows"], retention["totals"]["totalMsgs"]) == ([], [], None)
    status, answer = queen.call("GET", f"{BASE}/retention", groupBy="colour")
    assert (status, answer["error"]) == (400, "bad groupBy")


def test_worker_metrics_sum_the_ledger(queen: QueenApi) -> None:
    busy(queen)
    answer = queen.get(f"{BASE}/worker-metrics")
    points = answer["timeSeries"][-3:]
    assert [point["pushMessages"] for point in points] == [3, None, 3]
    assert [point["ackMessages"] for point in points] == [2, None, 0]
    assert (points[0]["dlqCount"], points[0]["popMessages"]) == (1, None)
    assert answer["pointCount"] == len(answer["timeSeries"])
    summary = answer["summary"]
    assert (summary["totalPushMessages"], summary["totalAckMessages"], summary["pendingMessages"]) == (6, 2, 4)


def test_system_metrics_are_those_of_this_process(queen: QueenApi) -> None:
    (replica,) = queen.get(f"{BASE}/system-metrics")["replicas"]
    (point,) = replica["timeSeries"]
    metrics = point["metrics"]
    assert metrics["memory"]["rss_bytes"]["last"] > 1 << 20
    assert metrics["cpu"]["user_us"].keys() == {"avg", "min", "max", "last"}
    assert metrics["database"]["pool_size"]["last"] is None
    assert queen.get(f"{BASE}/system-metrics", hostname="elsewhere")["replicas"] == []
    long_ago = {"from": "2025-11-16T08:00:00Z", "to": "2025-11-16T09:00:00Z"}
    assert queen.get(f"{BASE}/system-metrics", **long_ago)["replicas"] == []


def test_database_statistics_come_from_postgres_only(queen: QueenApi, store_url: str) -> None:
    queen.push("q", 1)
    stats = queen.get(f"{BASE}/postgres-stats")
    assert stats.keys() == {
        *("timestamp", "database", "databaseCache", "tableCache", "indexCache", "cacheSummary", "deadTuples"),
        *("hotUpdates", "activeQueries", "autovacuumStatus", "bufferConfig", "tableSizes", "bufferUsage"),
    }
    if store_url.startswith("sqlite"):
        assert [value for key, value in stats.items() if key != "timestamp" and value] == []
    else:
        assert stats["database"]["size"] > 0
        assert "segment" in {row["table"] for row in stats["tableSizes"]}
        assert stats["bufferConfig"]["shared_buffers"]


def test_workload_is_grouped(queen: QueenApi) -> None:
    busy(queen)
    for group_by, keys in (("namespace", ["shop", ""]), ("task", ["pay", ""]), ("queue", ["q", "other"])):
        answer = queen.get(f"{BASE}/workload", groupBy=group_by)
        assert (answer["groupBy"], [row["key"] for row in answer["rows"]]) == (group_by, keys)
        row = answer["rows"][0]
        assert (row["queues"], row["window"]["pushMessages"], row["window"]["ackFailed"]) == (1, 4, 1)
        assert row["series"]["push"][-3:] == [3, None, 1]
        assert len(row["series"]["push"]) == len(answer["buckets"])
        assert (row["now"]["deadLetter"], row["now"]["groups"], row["now"]["retainedBytes"]) == (1, 1, None)
        assert (answer["tenant"]["queues"], answer["tenant"]["now"]["queuesWithoutGroup"]) == (2, 1)
    assert queen.call("GET", f"{BASE}/workload", groupBy="colour")[0] == 400


def test_dead_letters_are_grouped_by_signature(queen: QueenApi) -> None:
    busy(queen)
    answer = queen.get(f"{BASE}/dlq-signatures", queue="q")
    assert (answer["rowsNow"], answer["sample"], answer["retryCounts"]) == (1, 1, {"1": 1})
    assert answer["signatures"] == [{"text": "order <n> of <date> failed", "n": 1, "share": 1.0}]
    assert answer["byDay"] == [{"day": "2025-11-16", "n": 1}]
    assert queen.get(f"{BASE}/dlq-signatures", queue="none")["rowsNow"] == 0
    status, refused = queen.call("GET", f"{BASE}/dlq-signatures")
    assert (status, refused["error"]) == (400, "queue required")


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        ("user 019a3c51-6a00-7d21-9c44-0e5a77b1c001 is gone", "user <id> is gone"),
        ("hash deadbeef00deadbeef00 at 12", "hash <id> at <n>"),
        ("on 2025-11-16", "on <date>"),
        ("x" * 500, "x" * 120),
    ],
)
def test_signature_hides_what_differs(text: str, signature: str) -> None:
    assert signature_of(text) == signature


def test_partition_liveness_lists_the_widest_queues(queen: QueenApi) -> None:
    busy(queen)
    queen.clock.advance(2 * 3600)
    queen.push("other", 1, partition="a")
    answer = queen.get(f"{BASE}/partition-liveness")
    rows = {row["queue"]: row for row in answer["rows"]}
    assert [row["queue"] for row in answer["rows"]] == ["other", "q"]
    other: Any = rows["other"]
    assert (other["partitions"], other["live1h"], other["live24h"], other["created24h"]) == (2, 1, 2, 2)
    assert (rows["q"]["live1h"], rows["q"]["namespace"], rows["q"]["pending"]) == (0, "shop", 2)
    assert [row["queue"] for row in queen.get(f"{BASE}/partition-liveness", limit=1)["rows"]] == ["other"]
    assert queen.call("GET", f"{BASE}/partition-liveness", limit=201)[0] == 400
