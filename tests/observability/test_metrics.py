"""`GET /metrics/prometheus` and `GET /metrics` agree with what was done before."""

from __future__ import annotations

import time

import httpx2
import pytest

from ackwise.clock import ManualClock
from ackwise.core.errors import StoreUnavailable
from ackwise.core.messages import QUEUE_MODE
from ackwise.observability import labels
from ackwise.observability.depths import DepthReader
from ackwise.observability.process_usage import process_usage
from tests.observability.calls import claim, push, settle
from tests.observability.scrapes import scrape
from tests.server.running import Running

START = time.monotonic()


def test_scrape_agrees_with_pushes_claims_and_settlements(http: httpx2.Client, clock: ManualClock) -> None:
    push(http, "orders", 10)
    first, second, third, _ = claim(http, "orders", 4)
    clock.advance(2)
    assert settle(http, "ack", first) == ["acked"]
    assert settle(http, "retry", second) == ["retried"]
    assert settle(http, "reject", third) == ["dead"]
    assert settle(http, "ack", first) == ["already"]
    seen = scrape(http)
    in_orders = {"queue": "orders", "group": "workers"}
    assert seen.value("ackwise_pushed_total", queue="orders") == 10
    assert seen.value("ackwise_delivered_total", **in_orders) == 4
    assert seen.of("ackwise_settled_total") == {
        ("workers", "acked", "orders"): 1,
        ("workers", "retried", "orders"): 1,
        ("workers", "dead", "orders"): 1,
    }
    assert seen.value("ackwise_settle_seconds_bucket", outcome="acked", le="1.0") == 0
    assert seen.value("ackwise_settle_seconds_bucket", outcome="acked", le="2.5") == 1
    assert seen.value("ackwise_settle_seconds_sum", outcome="acked") == 2
    assert seen.value("ackwise_refusals_total", verdict="already") == 1
    assert seen.value("ackwise_dead_letters_total", queue="orders", reason="rejected") == 1
    states = {state: count for (_, state), count in seen.of("ackwise_messages").items()}
    assert states == {"ready": 6, "leased": 1, "waiting": 1, "scheduled": 0, "dead": 1}
    assert seen.value("ackwise_lag_messages", **in_orders) == 8
    assert seen.value("ackwise_leases", **in_orders) == 1
    assert seen.value("ackwise_oldest_claimable_age_seconds", queue="orders") == 2
    assert seen.value("ackwise_queues") == 1


def test_scrape_counts_expired_leases_and_messages(http: httpx2.Client, server: Running, clock: ManualClock) -> None:
    push(http, "orders", 3)
    claim(http, "orders", 3)
    clock.advance(31)
    claim(http, "orders", 1)
    seen = scrape(http)
    assert seen.value("ackwise_lease_expiries_total", queue="orders", group="workers") == 1
    assert seen.value("ackwise_expired_messages_total", queue="orders", group="workers") == 3


def test_lock_of_pushpop_expired_is_a_lease_expiry(http: httpx2.Client, clock: ManualClock) -> None:
    http.post("/queue/jobs/push", json={"items": [{"item": {"n": 1}}, {"item": {"n": 2}}]}).raise_for_status()
    lock = http.post("/queue/jobs/pop", params={"require_ack": "true", "ttl_seconds": "5", "count": "2"}).json()
    clock.advance(6)
    assert http.post("/queue/jobs/acknowledge", json={"lock_id": lock["lock_id"]}).status_code == 410
    assert scrape(http).value("ackwise_lease_expiries_total", queue="jobs", group=QUEUE_MODE) == 1


def test_requests_are_counted_by_route_and_status(http: httpx2.Client) -> None:
    push(http, "orders", 1)
    http.get("/api/v1/nothing")
    http.request("PROPFIND", "/v1/push")
    seen = scrape(http)
    assert seen.value("ackwise_requests_total", method="POST", route="/v1/push", status="200") == 1
    assert seen.value("ackwise_requests_total", method="GET", route="unknown", status="404") == 1
    assert seen.value("ackwise_requests_total", method="other", route="unknown", status="405") == 1
    assert seen.value("ackwise_request_errors_total", route="unknown") == 2
    assert seen.value("ackwise_request_seconds_count", route="/v1/push") == 1


def test_moment_of_server_is_in_scrape(http: httpx2.Client, server: Running) -> None:
    seen = scrape(http)
    assert seen.value("ackwise_connections", listener="http") == 1
    assert seen.value("ackwise_long_polls") == 0
    assert seen.value("ackwise_healthy") == 1
    assert seen.value("ackwise_store_bytes") > 10_000
    assert seen.of("ackwise_build_info")
    assert seen.value("ackwise_turn_seconds_count") > 0


def test_depths_are_read_again_after_five_seconds(http: httpx2.Client, clock: ManualClock) -> None:
    push(http, "orders", 1)
    assert scrape(http).value("ackwise_messages", queue="orders", state="ready") == 1
    push(http, "orders", 1)
    cached = scrape(http)
    assert cached.value("ackwise_messages", queue="orders", state="ready") == 1
    assert cached.value("ackwise_pushed_total", queue="orders") == 2
    clock.advance(300)
    assert scrape(http).value("ackwise_messages", queue="orders", state="ready") == 2


def test_queues_above_the_bound_are_added_up_as_other(http: httpx2.Client) -> None:
    names = [f"q{number:03}" for number in range(300)]
    body = {"items": [{"queue": name, "payload": 1} for name in names for _ in range(1 + (name > "q249"))]}
    http.post("/api/v1/push", json=body).raise_for_status()
    seen = scrape(http)
    depths = {queue: value for (queue, state), value in seen.of("ackwise_messages").items() if state == "ready"}
    assert len(depths) == labels.MOST_QUEUES + 1
    assert sum(depths.values()) == 350
    assert all(depths[f"q{number}"] == 2 for number in range(250, 300))
    assert seen.value("ackwise_metrics_cut", label="queue") == 1
    assert seen.value("ackwise_queues") == 300
    assert sum(seen.of("ackwise_pushed_total").values()) <= 350


def test_few_queues_are_not_cut(http: httpx2.Client) -> None:
    push(http, "orders", 1)
    push(http, labels.OTHER, 2)
    seen = scrape(http)
    assert seen.value("ackwise_metrics_cut", label="queue") == 0
    assert seen.value("ackwise_messages", queue=labels.OTHER, state="ready") == 2


@pytest.mark.parametrize("path", ["/metrics", "/metrics/prometheus"])
def test_metrics_accept_any_host_and_any_site(http: httpx2.Client, path: str) -> None:
    headers = {"host": "scraper.example", "origin": "https://elsewhere.example", "sec-fetch-site": "cross-site"}
    assert http.get(path, headers=headers).status_code == 200


def test_metrics_as_json_have_the_fields_of_queen(http: httpx2.Client) -> None:
    push(http, "orders", 4)
    answer = http.get("/metrics").json()
    assert list(answer) == ["uptime", "requests", "messages", "database", "memory", "cpu"]
    assert (answer["requests"]["total"], answer["messages"]["total"]) == (1, 4)
    assert answer["database"] == {"poolSize": 1, "idleConnections": 1, "waitingRequests": 1}
    assert answer["memory"]["rss"] > 1 << 20


def test_names_of_queen_agree_with_requests(http: httpx2.Client, clock: ManualClock) -> None:
    http.post("/api/v1/push", json={"items": [{"queue": "orders", "payload": n} for n in range(3)]})
    http.get("/api/v1/pop/queue/orders", params={"batch": "2"})
    http.get("/api/v1/pop/queue/orders", params={"batch": "2", "wait": "false"})
    http.get("/api/v1/pop/queue/orders", params={"batch": "2", "wait": "false"})
    clock.advance(60)
    seen = scrape(http)
    assert seen.value("queen_cluster_push_requests_total") == 1
    assert seen.value("queen_cluster_push_messages_total") == 3
    assert seen.value("queen_cluster_pop_requests_total") == 3
    assert seen.value("queen_queue_push_messages_per_minute", queue="orders") == 3
    assert seen.value("queen_queue_pop_empty_per_minute", queue="orders") >= 1
    assert seen.value("queen_dlq_depth") == 0
    assert seen.value("queen_maintenance_mode_enabled") == 0


def test_scrape_shows_a_maintenance_and_its_spool(http: httpx2.Client) -> None:
    http.post("/api/v1/system/maintenance", json={"enabled": True}).raise_for_status()
    http.post("/api/v1/push", json={"items": [{"queue": "orders", "payload": n} for n in range(3)]})
    seen = scrape(http)
    assert seen.value("queen_maintenance_mode_enabled") == 1
    assert seen.value("queen_file_buffer_pending") == 3
    assert seen.value("queen_file_buffer_failed") == 0


def test_uptime_begins_with_the_process() -> None:
    before = time.monotonic()
    assert process_usage().uptime > before - START


def test_scrape_without_store_shows_earlier_depths(
    http: httpx2.Client, server: Running, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(http, "orders", 1)
    scrape(http)
    clock.advance(300)

    def unavailable(*_: object) -> None:
        raise StoreUnavailable("the disk is gone")

    monkeypatch.setattr(DepthReader, "refresh", unavailable)
    seen = scrape(http)
    assert seen.value("ackwise_messages", queue="orders", state="ready") == 1
    assert seen.value("ackwise_metrics_read_failures_total") == 1
    assert seen.value("ackwise_metrics_age_seconds") == 300


def test_leased_and_waiting_messages_have_no_claimable_age(http: httpx2.Client, clock: ManualClock) -> None:
    push(http, "orders", 2)
    push(http, "zeta", 1)
    first, _ = claim(http, "orders", 2)
    settle(http, "retry", first)
    clock.advance(0.5)
    seen = scrape(http)
    assert seen.value("ackwise_messages", queue="orders", state="waiting") == 1
    assert seen.value("ackwise_oldest_claimable_age_seconds", queue="orders") == 0
    clock.advance(300)
    assert scrape(http).value("ackwise_oldest_claimable_age_seconds", queue="orders") == 300.5


def test_scrape_of_postgres_agrees_with_what_was_done(pg_url: str, clock: ManualClock) -> None:
    with Running(pg_url, clock) as server, httpx2.Client(base_url=server.url) as http:
        push(http, "orders", 3)
        first, _ = claim(http, "orders", 2)
        assert settle(http, "ack", first) == ["acked"]
        clock.advance(4)
        seen = scrape(http)
    states = {state: count for (_, state), count in seen.of("ackwise_messages").items()}
    assert states == {"ready": 1, "leased": 1, "waiting": 0, "scheduled": 0, "dead": 0}
    assert seen.value("ackwise_oldest_claimable_age_seconds", queue="orders") == 4
    assert seen.value("ackwise_settled_total", queue="orders", group="workers", outcome="acked") == 1
    assert seen.value("ackwise_store_bytes") > 1 << 20
