"""Log records of requests that change something: the queue, the count and the command."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

import ackwise
from ackwise.clock import ManualClock
from ackwise.core.answers import Claimed, Grant
from ackwise.core.commands import PruneQueue
from ackwise.core.ids import LaneId
from ackwise.core.queries import ListLanes
from ackwise.observability.log_records import JSONFormatter, TextFormatter, log_fields
from ackwise.protocols.native.claim import LeaseQueues
from tests.observability.calls import claim, push, settle
from tests.observability.scrapes import scrape
from tests.server.running import Running

Logged = list[tuple[str, str, int]]


@pytest.fixture
def logs(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "ackwise")
    return caplog


@pytest.fixture
def server(logs: pytest.LogCaptureFixture, store: str, clock: ManualClock) -> Iterator[Running]:
    with Running(store, clock) as running:
        yield running


def request_fields(http: httpx2.Client, logs: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Fields of the records since the last call. A request for the metrics runs the batch step of the log, too."""
    http.get("/metrics").raise_for_status()
    arguments = [record.args for record in logs.records if record.msg == "%s %s"]
    logs.clear()
    return [dict(args[1]) for args in arguments if isinstance(args, tuple) and args[0] == "request"]  # type: ignore[call-overload]


def requests(http: httpx2.Client, logs: pytest.LogCaptureFixture, key: str = "route") -> Logged:
    return [(fields[key], fields["queue"], fields["messages"]) for fields in request_fields(http, logs)]


def dead_letters(http: httpx2.Client, queue: str, count: int) -> list[str]:
    push(http, queue, count)
    settle(http, "reject", *claim(http, queue, count))
    letters = http.get("/v1/dead-letters", params={"queue": queue}).json()["dead_letters"]
    return [letter["id"] for letter in letters]


def test_admin_commands_log_tag_queue_and_messages(
    server: Running, http: httpx2.Client, logs: pytest.LogCaptureFixture
) -> None:
    with ackwise.connect(server.url) as connection:
        connection.create_queue("orders")
        push(http, "orders", 27)
        claim(http, "orders", 1)
        request_fields(http, logs)
        lanes = {lane.lane: lane.head for lane in connection.transport.ask(ListLanes(queue="orders"))}
        connection.seek("orders", "workers", to="end")
        connection.transport.send(PruneQueue(queue="orders", lanes=lanes))
        connection.delete_group("orders", "workers")
        connection.delete_queue("orders")
    assert requests(http, logs, "command") == [
        ("seek_group", "orders", 0),
        ("prune_queue", "orders", 27),
        ("delete_group", "orders", 0),
        ("delete_queue", "orders", 0),
    ]


def test_admin_redrive_and_purge_log_the_letters(http: httpx2.Client, logs: pytest.LogCaptureFixture) -> None:
    letters = dead_letters(http, "orders", 5)
    request_fields(http, logs)
    http.post("/v1/admin", json={"type": "redrive", "ids": [*letters[:2], "none"]}).raise_for_status()
    http.post("/v1/admin", json={"type": "purge_dead", "ids": ["none", letters[2]]}).raise_for_status()
    http.post("/v1/admin", json={"type": "replay", "ids": letters[3:4]}).raise_for_status()
    http.post("/v1/admin", json={"type": "purge_dead", "queue": "orders"}).raise_for_status()
    http.post("/v1/admin", json={"type": "redrive", "ids": ["none"]}).raise_for_status()
    assert requests(http, logs, "command") == [
        ("redrive", "orders", 2),
        ("purge_dead", "orders", 1),
        ("replay", "orders", 1),
        ("purge_dead", "orders", 1),
        ("redrive", "", 0),
    ]


def test_refused_admin_command_logs_its_queue(http: httpx2.Client, logs: pytest.LogCaptureFixture) -> None:
    assert http.post("/v1/admin", json={"type": "delete_queue", "queue": "none"}).status_code == 404
    (fields,) = request_fields(http, logs)
    assert (fields["command"], fields["queue"], fields["status"]) == ("delete_queue", "none", 404)


def test_delivery_requests_log_the_queue_of_the_lease(http: httpx2.Client, logs: pytest.LogCaptureFixture) -> None:
    push(http, "orders", 3)
    body = {"queue": "orders", "group": "g", "max": 3}
    lease = http.post("/v1/claim", json=body).json()
    request_fields(http, logs)
    extension = {"lease_id": lease["lease_id"], "lease_seconds": 30}
    http.post("/v1/extend", json=extension).raise_for_status()
    http.post("/v1/extend-all", json={"extensions": [extension]}).raise_for_status()
    settle(http, "ack", lease["messages"][0]["delivery_id"])
    settlement = {"delivery_id": lease["messages"][1]["delivery_id"], "outcome": "ack"}
    pushed = {"queue": "next", "payloads": [1]}
    http.post("/v1/transaction", json={"settlements": [settlement], "pushes": [pushed]}).raise_for_status()
    http.post("/v1/release", json={"lease_id": lease["lease_id"]}).raise_for_status()
    assert requests(http, logs) == [
        ("/v1/extend", "orders", 0),
        ("/v1/extend-all", "orders", 0),
        ("/v1/settle", "orders", 1),
        ("/v1/transaction", "orders", 2),
        ("/v1/release", "orders", 1),
    ]


def test_lease_queues_forget_the_oldest_lease() -> None:
    leases = LeaseQueues(most=2)
    claims = [
        Claimed("g", [Grant(f"q{number}", "p", "id", LaneId(1), 0, 0, 1, 0, 1)], lease_no=number, tag=1)
        for number in (1, 2, 3)
    ]
    for claimed in claims:
        leases.add(claimed)
    first, second, third = (claimed.lease_id for claimed in claims)
    assert [leases.of(first), leases.of(second), leases.of(third)] == ["", "q2", "q3"]


def test_resource_requests_log_queue_and_messages(http: httpx2.Client, logs: pytest.LogCaptureFixture) -> None:
    http.post("/v1/queues", json={"queue": "orders"}).raise_for_status()
    http.post("/v1/messages", json={"queue": "orders", "payloads": [1, 2]}).raise_for_status()
    lease = http.post("/v1/claim", json={"queue": "orders", "max": 2}).json()["lease_id"]
    http.patch(f"/v1/leases/{lease}", json={"lease_seconds": 30}).raise_for_status()
    http.delete(f"/v1/leases/{lease}").raise_for_status()
    http.post("/v1/queues/orders/purge").raise_for_status()
    assert requests(http, logs) == [
        ("/v1/queues", "orders", 0),
        ("/v1/messages", "orders", 2),
        ("/v1/claim", "orders", 2),
        ("/v1/leases/{lease}", "orders", 0),
        ("/v1/leases/{lease}", "orders", 2),
        ("/v1/queues/{queue}/purge", "orders", 2),
    ]


def test_dead_letter_resources_log_queue_and_messages(http: httpx2.Client, logs: pytest.LogCaptureFixture) -> None:
    first, second, *_ = dead_letters(http, "orders", 5)
    request_fields(http, logs)
    http.post(f"/v1/dead-letters/{first}/redrive").raise_for_status()
    http.delete(f"/v1/dead-letters/{second}").raise_for_status()
    http.post("/v1/dead-letters/redrive", json={"all": True, "limit": 1}).raise_for_status()
    http.post("/v1/dead-letters/purge", json={"queue": "orders", "dry_run": True}).raise_for_status()
    http.post("/v1/dead-letters/purge", json={"queue": "orders"}).raise_for_status()
    assert [(queue, messages) for _, queue, messages in requests(http, logs)] == [
        ("orders", 1), ("orders", 1), ("orders", 1), ("orders", 0), ("orders", 2),
    ]  # fmt: skip


def test_queen_configure_and_transaction_log_the_queue(http: httpx2.Client, logs: pytest.LogCaptureFixture) -> None:
    http.post("/api/v1/configure", json={"queue": "orders"}).raise_for_status()
    operation = {"type": "push", "items": [{"queue": "orders", "payload": 1}, {"queue": "orders", "payload": 2}]}
    http.post("/api/v1/transaction", json={"operations": [operation]}).raise_for_status()
    assert requests(http, logs) == [("/api/v1/configure", "orders", 0), ("/api/v1/transaction", "orders", 2)]


def test_push_to_messages_counts_as_a_push_request(http: httpx2.Client) -> None:
    http.post("/v1/messages", json={"queue": "orders", "payloads": [1, 2]}).raise_for_status()
    http.get("/v1/messages", params={"queue": "orders"}).raise_for_status()
    assert scrape(http).value("queen_cluster_push_requests_total") == 1


def test_default_group_is_readable_in_text_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ackwise")
    log_fields(logging.getLogger("ackwise"), logging.INFO, "dead letter", queue="q", group="__QUEUE_MODE__", id="7")
    (record,) = caplog.records
    assert TextFormatter().format(record).endswith("dead letter queue=q group=(default) id=7")
    assert json.loads(JSONFormatter().format(record))["group"] == "__QUEUE_MODE__"
