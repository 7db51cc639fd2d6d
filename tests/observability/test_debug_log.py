"""Debug log: what it shows of a server and of an app, and how much."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

import ackwise
from ackwise.amps import Client
from ackwise.clock import ManualClock
from ackwise.core import events as e
from ackwise.core.events import EventStream
from ackwise.observability.debug_log import RECORDS_A_SECOND, DebugLog, DebugRecords, debug_records
from ackwise.subscriber import App
from tests.broker.watched import until
from tests.observability.calls import claim, push, settle
from tests.observability.records import logged
from tests.protocols.pushpop.receiving import Receiver
from tests.server.running import Running
from tests.subscriber.app_runs import go

log = logging.getLogger("ackwise.store")
SECRET = "payload-of-a-customer"


@pytest.fixture
def at_debug(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.LogCaptureFixture]:
    """The log at the level debug. Other tests in the same second do not use up its records."""
    caplog.set_level(logging.DEBUG, "ackwise")
    monkeypatch.setattr(debug_records, "_counts", {})
    yield caplog
    assert SECRET not in caplog.text


@pytest.fixture
def server(at_debug: pytest.LogCaptureFixture, store: str, clock: ManualClock) -> Iterator[Running]:
    with Running(store, clock, amps_port=0) as running:
        yield running


def messages(log: pytest.LogCaptureFixture, logger: str) -> set[str]:
    """Messages of the debug records of a logger."""
    records = [record for record in log.records if record.name == logger and record.levelno == logging.DEBUG]
    return {str(record.args[0]) for record in records if isinstance(record.args, tuple)}


def test_records_above_the_bound_are_counted(at_debug: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    records = DebugRecords(lambda: now[0])
    for number in range(RECORDS_A_SECOND + 5):
        records.write(log, "turn", commands=number)
    records.write(log, "other")
    assert (len(logged(at_debug, "turn")), len(logged(at_debug, "other"))) == (RECORDS_A_SECOND, 1)
    now[0] = 1.0
    records.tick()
    assert logged(at_debug, "more debug records") == [{"record": "turn", "records": 5}]
    records.write(log, "turn", commands=0)
    assert len(logged(at_debug, "turn")) == RECORDS_A_SECOND + 1


def test_level_info_subscribes_to_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ackwise")
    stream = EventStream()
    DebugLog(stream)
    assert not stream.listening
    DebugRecords().write(log, "turn")
    assert not caplog.records


def test_one_logger_at_debug_hears_its_own_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ackwise")
    caplog.set_level(logging.DEBUG, "ackwise.store")
    stream = EventStream()
    stop = DebugLog(stream, DebugRecords()).stop
    stream.emit(e.TurnCommitted(2, 7, 0.003))
    stream.emit(e.TurnCommitted(1, 0, 0.003))
    stream.emit(e.MessagesPushed("orders", 7))
    assert [record.getMessage() for record in caplog.records] == ["turn commands=2 messages=7 ms=3"]
    stop()
    assert not stream.listening


def test_requests_show_turns_messages_and_connections(
    server: Running, http: httpx2.Client, at_debug: pytest.LogCaptureFixture
) -> None:
    body: dict[str, Any] = {"queue": "orders", "payloads": [SECRET, SECRET]}
    http.post("/v1/push", json=body).raise_for_status()
    first, second = claim(http, "orders", 2)
    settle(http, "ack", first)
    settle(http, "retry", second)
    settle(http, "ack", first)
    http.get("/v1/queues").raise_for_status()
    until(lambda: bool(logged(at_debug, "read")))
    assert logged(at_debug, "pushed") == [{"queue": "orders", "messages": 2, "duplicates": None}]
    assert logged(at_debug, "claimed") == [{"queue": "orders", "group": "workers", "messages": 2}]
    assert [record["outcome"] for record in logged(at_debug, "settled")] == ["acked", "retried"]
    assert logged(at_debug, "refused") == [{"reason": "already", "requests": 1}]
    assert logged(at_debug, "read")[0]["route"] == "/v1/queues"
    assert logged(at_debug, "connection opened")[0]["peer"] == "127.0.0.1"
    assert "turn" in messages(at_debug, "ackwise.store")
    http.close()
    until(lambda: "connection closed" in messages(at_debug, "ackwise.server"))


def test_webhook_shows_its_posts(server: Running, http: httpx2.Client, at_debug: pytest.LogCaptureFixture) -> None:
    http.post("/v1/queues", json={"queue": "orders"}).raise_for_status()
    with Receiver() as receiver:
        http.put("/v1/queues/orders/on-dead", json={"url": receiver.url}).raise_for_status()
        push(http, "orders", 1)
        settle(http, "reject", *claim(http, "orders", 1))
        receiver.next()
        until(lambda: bool(logged(at_debug, "hook reported a dead letter")))
    assert logged(at_debug, "hook posts dead letters") == [{"queue": "orders", "hook": "webhook", "messages": 1}]


def test_amps_shows_clients_and_subscriptions(server: Running, at_debug: pytest.LogCaptureFixture) -> None:
    uri = f"tcp://{server.amps[0]}:{server.amps[1]}/amps/json"
    with Client("billing").connect(uri).logon() as client:
        client.subscribe("queue://orders", lambda _: None, filter=f"/n = '{SECRET}'")
    until(lambda: "connection closed" in messages(at_debug, "ackwise.amps"))
    assert logged(at_debug, "logged on") == [{"peer": "127.0.0.1", "client": "billing"}]
    assert logged(at_debug, "subscribed") == [{"peer": "127.0.0.1", "topic": "queue://orders", "filtered": True}]


def test_app_shows_claims_and_handlers(store: str, at_debug: pytest.LogCaptureFixture) -> None:
    with ackwise.connect(store) as connection:
        connection.push("orders", SECRET)
    app = App(store)
    handled = asyncio.Event()

    @app.subscriber("orders")
    async def handle(order: str) -> None:
        handled.set()

    async def run() -> None:
        async with app:
            await handled.wait()

    go(run)
    (ended,) = logged(at_debug, "handler ended")
    assert (ended["queue"], ended["attempt"]) == ("orders", 1)
    assert {"claimed", "settled", "handler ended"} <= messages(at_debug, "ackwise.subscriber")
