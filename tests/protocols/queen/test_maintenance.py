"""Maintenance: pushes wait in the spool until its end, pops answer empty. Both switches are rows of the store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from ackwise.clock import ManualClock
from ackwise.core.events import MaintenanceChanged, SpoolReplayed
from tests.patience import PATIENCE
from tests.protocols.queen.queen_api import QueenApi, eventually
from tests.server.process import ServerProcess
from tests.server.running import Running

SYSTEM = "/api/v1/system"


def switch(queen: QueenApi, enabled: bool, which: str = "maintenance") -> Any:
    status, answer = queen.call("POST", f"{SYSTEM}/{which}", {"enabled": enabled})
    assert status == 200, answer
    return answer


def buffered(queen: QueenApi) -> int:
    count: int = queen.get(f"{SYSTEM}/maintenance")["bufferedMessages"]
    return count


def stored(queen: QueenApi, queue: str) -> list[Any]:
    """Payloads of a queue, oldest first."""
    return [m["data"] for m in queen.get("/api/v1/messages", queue=queue, limit=1000)["messages"]][::-1]


@contextmanager
def serving(url: str, clock: ManualClock, mode: str = "seed") -> Iterator[tuple[Running, QueenApi]]:
    with (
        Running(url, clock, queen_defaults=mode) as server,
        httpx2.Client(base_url=server.url, timeout=PATIENCE) as http,
    ):
        yield server, QueenApi(http, clock, mode)


@pytest.mark.parametrize("mode", ["seed", "upstream"])
def test_pushes_in_maintenance_wait_and_are_replayed_in_order(queen: QueenApi) -> None:
    queen.push("q", "before")
    answer = switch(queen, True)
    assert (answer["maintenanceMode"], answer["bufferedMessages"], answer["bufferHealthy"]) == (True, 0, True)
    for n in range(3):
        (first, second) = queen.push("q", f"{n}a", f"{n}b")
        assert (first["status"], first["message_id"], second["status"]) == ("buffered", None, "buffered")
        assert first["transaction_id"] != second["transaction_id"]
    assert stored(queen, "q") == ["before"]
    shown = queen.get(f"{SYSTEM}/maintenance")
    assert (shown["maintenanceMode"], shown["popMaintenanceMode"], shown["bufferedMessages"]) == (True, False, 6)
    assert shown["bufferStats"]["pendingCount"] == 6
    assert queen.get("/api/v1/status/buffers")["pending"] == 6
    assert switch(queen, False)["maintenanceMode"] is False
    eventually(lambda: buffered(queen) == 0)
    assert stored(queen, "q") == ["before", "0a", "0b", "1a", "1b", "2a", "2b"]
    assert queen.push("q", "after")[0]["status"] == "queued"


def test_items_of_a_request_keep_their_options_in_the_spool(queen: QueenApi) -> None:
    switch(queen, True)
    items = [
        {"queue": "q", "payload": 1, "transactionId": "t1", "partition": "a"},
        {"queue": "q", "payload": 2, "transactionId": "t1", "partition": "a"},
        {"queue": "other", "payload": 3, "traceId": "trace"},
        {"queue": "q", "payload": 4, "delaySeconds": 100},
    ]
    status, answer = queen.call("POST", "/api/v1/push", {"items": items})
    assert (status, [row["status"] for row in answer]) == (201, ["buffered"] * 4)
    assert (answer[0]["transaction_id"], answer[2]["trace_id"]) == ("t1", "trace")
    queen.clock.advance(60)
    switch(queen, False)
    eventually(lambda: buffered(queen) == 0)
    assert (stored(queen, "q"), stored(queen, "other")) == ([1], [3])
    assert queen.pop("other")[0]["traceId"] == "trace"
    queen.clock.advance(50)
    messages = eventually(lambda: [m for m in queen.pop("q", batch=10, partitions=10) if m["data"] == 4])
    assert len(messages) == 1


def test_invalid_push_in_maintenance_is_refused(queen: QueenApi) -> None:
    switch(queen, True)
    for item in ({"queue": "", "payload": 1}, {"queue": "q", "payload": 1, "delaySeconds": -1}):
        assert queen.call("POST", "/api/v1/push", {"items": [item]})[0] == 400
    assert buffered(queen) == 0


def test_refused_push_stays_in_the_spool_and_is_tried_again(queen: QueenApi) -> None:
    queen.push("small", 1)
    limit = {"type": "configure_queue", "queue": "small", "policy": {"max_payload_bytes": 5}}
    assert queen.call("POST", "/v1/admin", limit)[0] == 200
    switch(queen, True)
    queen.push("small", "much too large")
    queen.push("q", "fits")
    switch(queen, False)
    eventually(lambda: buffered(queen) == 0)
    assert stored(queen, "q") == ["fits"]
    stats = queen.get(f"{SYSTEM}/maintenance")["bufferStats"]
    assert (stats["failedCount"], stats["failedFiles"]["count"]) == (1, 1)
    assert stats["failedFiles"]["totalBytes"] > 0
    assert queen.call("POST", "/v1/admin", {**limit, "policy": {"max_payload_bytes": 1000}})[0] == 200
    switch(queen, False)
    eventually(lambda: stored(queen, "small") == [1, "much too large"])
    assert queen.get("/api/v1/status/buffers")["failed"] == 0


def test_transaction_and_replay_are_refused_in_maintenance(queen: QueenApi) -> None:
    queen.configure("q", retryLimit=0)
    queen.push("q", 1, 2)
    first, second = queen.pop("q", batch=2)
    queen.ack(first, "dlq")
    switch(queen, True)
    letter = queen.dlq("q")["messages"][0]["id"]
    status, answer = queen.call("POST", f"/api/v1/dlq/{letter}/replay", {})
    assert (status, answer["result"]) == (503, "maintenance")
    names = {name: second[name] for name in ("transactionId", "partitionId", "leaseId")}
    operations = [{"type": "ack", **names}, {"type": "push", "items": [{"queue": "next", "payload": 1}]}]
    status, answer = queen.call("POST", "/api/v1/transaction", {"operations": operations})
    assert (status, answer["code"]) == (503, "maintenance")
    status, answer = queen.call("POST", "/api/v1/transaction", {"operations": operations[:1]})
    assert (status, answer["success"]) == (200, True)
    assert len(queen.dead("q")) == 1


def test_switch_without_a_boolean_is_refused(queen: QueenApi) -> None:
    bodies: list[Any] = [{}, {"enabled": "yes"}, {"enabled": 1}, {"enabled": None}]
    for which in ("maintenance", "maintenance/pop"):
        for body in bodies:
            status, answer = queen.call("POST", f"{SYSTEM}/{which}", body)
            assert (status, answer["error"]) == (400, "enabled (boolean) is required")
    assert queen.get(f"{SYSTEM}/shared-state") == {
        "enabled": False,
        "reason": "the servers of one store share the store",
        "maintenance_mode": False,
        "pop_maintenance_mode": False,
    }


def test_pops_in_maintenance_answer_empty_at_once(store_url: str, clock: ManualClock) -> None:
    with serving(store_url, clock) as (server, queen):
        events: list[Any] = []
        broker = server.server.runtime.broker()
        broker.events.subscribe(events.append, MaintenanceChanged, SpoolReplayed)
        replies: list[Any] = []
        waiting = threading.Thread(target=lambda: replies.append(queen.pop("q", wait="true", timeout=60_000)))
        waiting.start()
        server.until_waiting()
        with httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
            other = QueenApi(http, clock, "seed")
            assert switch(other, True, "maintenance/pop")["popMaintenanceMode"] is True
            waiting.join(PATIENCE)
            assert replies == [[]]
            other.push("q", 1)
            assert other.pop("q", wait="true", timeout=60_000) == []
            assert other.get(f"{SYSTEM}/maintenance/pop")["popMaintenanceMode"] is True
            switch(other, False, "maintenance/pop")
            switch(other, False, "maintenance/pop")
            assert [m["data"] for m in other.pop("q", wait="true", timeout=60_000)] == [1]
        assert events == [MaintenanceChanged(push=False, pop=True), MaintenanceChanged(push=False, pop=False)]


def test_other_protocols_ignore_queens_maintenance(queen: QueenApi) -> None:
    switch(queen, True)
    switch(queen, True, "maintenance/pop")
    status, _ = queen.call("POST", "/v1/push", {"queue": "q", "messages": [{"payload": "bmF0aXZl"}]})
    assert status < 300
    status, answer = queen.call("POST", "/v1/claim", {"queue": "q"})
    assert status == 200
    assert len(answer["messages"] if "messages" in answer else answer["deliveries"]) == 1


def test_switches_and_spool_survive_a_restart(store_url: str, clock: ManualClock) -> None:
    with serving(store_url, clock) as (_, queen):
        switch(queen, True)
        switch(queen, True, "maintenance/pop")
        queen.push("q", 1)
    with serving(store_url, clock) as (_, queen):
        assert queen.push("q", 2)[0]["status"] == "buffered"
        assert queen.pop("q") == []
        switch(queen, False)
        switch(queen, False, "maintenance/pop")
        eventually(lambda: buffered(queen) == 0)
        assert stored(queen, "q") == [1, 2]


def test_servers_of_one_store_share_the_switches(
    pg_url_factory: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notifications tell the other server: it does not look for itself."""
    monkeypatch.setattr("ackwise.protocols.queen.maintenance_watch.LOOK_EVERY", 10 * PATIENCE)
    url = pg_url_factory()
    with serving(url, clock) as (_, one), serving(url, clock) as (_, other):
        switch(one, True)
        eventually(lambda: other.push("q", "kept")[0]["status"] == "buffered")
        switch(one, True, "maintenance/pop")
        one.push("q", "kept")
        eventually(lambda: other.call("GET", "/api/v1/pop/queue/q", wait="true", timeout=60_000)[0] == 204)
        switch(other, False)
        switch(other, False, "maintenance/pop")
        eventually(lambda: one.push("q", "direct")[0]["status"] == "queued")
        eventually(lambda: buffered(one) == 0)
        texts = stored(one, "q")
        assert texts.count("kept") >= 1
        assert texts[-1] == "direct"


def test_kill_during_replay_loses_and_doubles_nothing(store_url: str, clock: ManualClock) -> None:
    """A turn of the replay takes one of these pushes, so the replay takes many turns."""
    pushes, padding = 6, "x" * (1 << 20)
    with ServerProcess(store_url) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        queen = QueenApi(http, clock, "seed")
        switch(queen, True)
        for n in range(pushes):
            queen.push("q", n, f"{n}{padding}")
        switch(queen, False)
        server.kill()
    with ServerProcess(store_url) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        queen = QueenApi(http, clock, "seed")
        eventually(lambda: buffered(queen) == 0)
        texts = [str(data)[:2].strip("x") for data in stored(queen, "q")]
        assert texts == [str(n) for n in range(pushes) for _ in range(2)]
