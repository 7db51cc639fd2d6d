"""Events of requests: the pattern of the route, the status and the peer."""

from __future__ import annotations

from pathlib import Path

import httpx2

from ackwise.core.events import RequestServed
from ackwise.server.app import NO_ROUTE
from tests.event_log import EventLog
from tests.server.running import Running
from tests.server.wire import Wire


def test_each_request_is_heard_with_its_route(tmp_path: Path) -> None:
    with (
        Running(f"sqlite:///{tmp_path}/q.db?durability=normal") as server,
        EventLog(server.server.runtime.broker().store.events) as log,
        httpx2.Client(base_url=server.url) as http,
    ):
        http.post("/api/v1/push", json={"items": [{"queue": "orders", "payload": 1}]})
        http.get("/api/v1/pop/queue/orders", params={"wait": "false"})
        http.get("/api/v1/nothing/here")
        http.request("PUT", "/api/v1/push")
        http.get("/livez")
        log.wait_for(RequestServed, 5)
    served = [(event.method, event.route, event.status, event.peer) for event in log.of(RequestServed)]
    assert served == [
        ("POST", "/api/v1/push", 201, "127.0.0.1"),
        ("GET", "/api/v1/pop/queue/{queue}", 200, "127.0.0.1"),
        ("GET", NO_ROUTE, 404, "127.0.0.1"),
        ("PUT", NO_ROUTE, 405, "127.0.0.1"),
        ("GET", "/livez", 200, "127.0.0.1"),
    ]
    assert all(event.seconds > 0 for event in log.of(RequestServed))


def test_client_that_leaves_is_heard_as_499(tmp_path: Path) -> None:
    with (
        Running(f"sqlite:///{tmp_path}/q.db?durability=normal") as server,
        EventLog(server.server.runtime.broker().store.events) as log,
    ):
        with Wire(server.address) as wire:
            wire.ask("GET", "/api/v1/pop/queue/orders?wait=true&timeout=60000")
            server.until_waiting()
        event = log.wait_for(RequestServed)
    assert (event.route, event.status) == ("/api/v1/pop/queue/{queue}", 499)
