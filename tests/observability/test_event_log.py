"""Event log: which events become log records, and how many."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import httpx2
import pytest

from ackwise.clock import ManualClock
from ackwise.core import events as e
from ackwise.core.events import EventStream
from ackwise.engine.turn import Tally
from ackwise.engine.turn_events import TurnReport
from ackwise.observability.event_buffer import EventBuffer
from ackwise.observability.event_log import EventLog, changes
from ackwise.observability.log_records import Fields
from ackwise.store.sqlite.connection import SCHEMA_VERSION
from tests.observability.calls import claim, push, settle
from tests.observability.records import logged
from tests.server.running import Running


class Log:
    """An event log with its stream and its buffer."""

    def __init__(self, clock: ManualClock) -> None:
        self.stream = EventStream()
        self._buffer, self._log = EventBuffer(self.stream, clock.now), EventLog(clock.now)
        self._buffer.add(self._log.add)

    def emit(self, event: e.Event | TurnReport) -> None:
        """Emit the event and run the batch step."""
        if isinstance(event, TurnReport):
            self.stream.emit_later(event)
        else:
            self.stream.emit(event)
        self.tick()

    def tick(self) -> None:
        self._buffer.flush()

    def close(self) -> None:
        self._buffer.close()
        self._log.close()


@pytest.fixture
def log(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> Iterator[Log]:
    caplog.set_level(logging.INFO, "ackwise")
    event_log = Log(clock)
    yield event_log
    event_log.close()


def request(route: str = "/v1/push", status: int = 200, messages: int = 2) -> e.RequestServed:
    return e.RequestServed("POST", route, status, 0.004, "10.0.0.1", "orders", messages)


def letter(number: int = 0, queue: str = "orders") -> e.DeadLetterAdded:
    return e.DeadLetterAdded(queue, "workers", f"id-{number}", "retry_limit", "no such customer", 3)


def turn(*, seconds: float = 0.2, expired: dict[str, int] | None = None) -> TurnReport:
    """A turn of 3 commands that pushed 40 messages, and whose messages by queue had expired leases."""
    tally: Tally = {("orders", "", "pushed", 0): (40, {})} if expired is None else {}
    tally |= {(queue, "workers", "lease_expired", 0): (count, {}) for queue, count in (expired or {}).items()}
    return TurnReport(tally, {}, {}, {}, [], 3, seconds)


def test_request_that_changes_is_logged_with_its_fields(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.emit(request())
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("ackwise.server", logging.INFO)
    assert record.getMessage() == (
        "request peer=10.0.0.1 method=POST route=/v1/push queue=orders status=200 messages=2 ms=4"
    )


@pytest.mark.parametrize(
    ("method", "route", "changing"),
    [
        ("POST", "/v1/push", True),
        ("GET", "/api/v1/pop/queue/{queue}", True),
        ("DELETE", "/api/v1/resources/queues/{queue}", True),
        ("GET", "/v1/queues", False),
        ("POST", "/v1/ask", False),
        ("POST", "unknown", False),
        ("GET", "/metrics/prometheus", False),
    ],
)
def test_route_changes_by_method_and_path(method: str, route: str, changing: bool) -> None:
    assert changes(method, route) is changing


def test_requests_above_100_a_second_are_added_up_by_route(
    log: Log, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        log.emit(request())
    for number in range(50):
        log.emit(request(status=400 if number < 5 else 200))
    log.emit(request("/v1/settle", messages=7))
    assert len(logged(caplog, "request")) == 100
    assert not logged(caplog, "more requests in one second")
    clock.advance(1)
    log.tick()
    sums = logged(caplog, "more requests in one second")
    assert [(total["route"], total["requests"], total["errors"], total["messages"]) for total in sums] == [
        ("/v1/push", 50, 5, 100),
        ("/v1/settle", 1, 0, 7),
    ]
    log.emit(request())
    assert len(logged(caplog, "request")) == 101


def test_dead_letters_above_10_a_second_are_added_up(
    log: Log, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(25):
        log.emit(letter(number))
    assert len(logged(caplog, "dead letter")) == 10
    clock.advance(1)
    log.emit(letter(99))
    assert logged(caplog, "more dead letters") == [
        {"queue": "orders", "group": "workers", "reason": "retry_limit", "messages": 15}
    ]
    assert len(logged(caplog, "dead letter")) == 11


def test_dead_letter_is_logged_with_its_error(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.emit(letter(7))
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("ackwise.engine", logging.WARNING)
    assert record.getMessage() == (
        'dead letter queue=orders group=workers id=id-7 reason=retry_limit error="no such customer" attempts=3'
    )


def test_lease_expiries_of_one_second_are_one_record(
    log: Log, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        log.emit(turn(expired={"orders": 4}))
    clock.advance(1)
    log.tick()
    assert logged(caplog, "leases expired") == [{"queue": "orders", "group": "workers", "messages": 12}]


def test_names_of_one_second_are_bounded(log: Log, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    log.emit(turn(expired={f"q{number}": 1 for number in range(1500)}))
    clock.advance(1)
    log.tick()
    sums = logged(caplog, "leases expired")
    assert len(sums) == 1001
    assert sums[-1] == {"queue": "other", "group": "other", "messages": 500}


def test_trouble_of_the_store_is_logged(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.emit(turn(seconds=0.2))
    log.emit(turn(seconds=1.5))
    assert logged(caplog, "slow turn") == [{"seconds": 1.5, "commands": 3, "messages": 40}]
    log.emit(e.TurnFellBack(3, "StoreFull: no space"))
    log.emit(e.ConnectionLost("postgresql://app:secret@db/queue", "server closed"))
    log.emit(e.ConnectionRestored("postgresql://app:secret@db/queue", 2.5))
    log.emit(e.StoreMigrated("q.db", 7, 8))
    assert [(record.name, record.args[0]) for record in caplog.records if isinstance(record.args, tuple)] == [
        ("ackwise.store", "slow turn"),
        ("ackwise.store", "turn failed, its commands run one by one"),
        ("ackwise.store", "connection lost"),
        ("ackwise.store", "connection back"),
        ("ackwise.store", "store migrated"),
    ]
    assert "secret" not in caplog.text


def test_hostile_name_stays_in_one_line(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.emit(letter(queue="a\n2026-01-01 ERROR fake\x1b[31m"))
    (record,) = caplog.records
    text = record.getMessage()
    assert text.isprintable()
    assert 'queue="a\\n2026-01-01 ERROR fake\\x1b[31m"' in text


def test_fields_without_value_are_left_out() -> None:
    assert str(Fields(queue="", group=None, count=0, kept=True)) == "count=0 kept=yes"


def test_server_logs_start_requests_deaths_and_stop(
    store: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ackwise")
    with Running(store, clock) as server, httpx2.Client(base_url=server.url) as http:
        push(http, "orders", 2)
        first, _ = claim(http, "orders", 2)
        settle(http, "reject", first, error="no such\ncustomer")
        http.get("/v1/queues")
    (start,) = logged(caplog, "server started")
    assert start["http"] == server.url.removeprefix("http://")
    assert (start["schema"], start["max_connections"], start["grace"]) == (SCHEMA_VERSION, 10_000, 10.0)
    requests = [(entry["route"], entry.get("queue"), entry["messages"]) for entry in logged(caplog, "request")]
    assert requests == [("/v1/push", "orders", 2), ("/v1/claim", "orders", 2), ("/v1/settle", "orders", 1)]
    (dead,) = logged(caplog, "dead letter")
    assert (dead["queue"], dead["reason"], dead["attempts"]) == ("orders", "rejected", 1)
    assert logged(caplog, "server drains")
    assert logged(caplog, "server stopped")
