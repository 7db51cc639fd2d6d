"""OpenTelemetry spans of connections: names, kinds, parents and links, over a store and over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ackwise
from tests.server.running import Running


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


@pytest.fixture(params=["embedded", "http"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    store = f"sqlite:///{tmp_path}/traced.db"
    if request.param == "embedded":
        yield store
    else:
        with Running(store) as running:
            yield running.url


@pytest.fixture
def queue(url: str, spans: InMemorySpanExporter) -> Iterator[ackwise.Connection]:
    with ackwise.connect(url) as connection:
        connection.create_queue("q", ackwise.QueuePolicy())
        yield connection


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def linked_by(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def test_one_trace_spans_push_delivery_and_settlement(queue: ackwise.Connection, spans: InMemorySpanExporter) -> None:
    with trace.get_tracer("test").start_as_current_span("caller"):
        queue.push("q", 1, headers={"kept": "yes"})
    (delivery,) = queue.claim("q", group="g")
    with delivery:
        assert delivery.headers["kept"] == "yes"
    (caller,), (send,), (receive,) = (named(spans, name) for name in ("caller", "send q", "receive q"))
    (process,), (settle,) = named(spans, "process q"), named(spans, "settle")
    assert [parent_of(send), parent_of(process), parent_of(settle)] == [
        span_id(caller),
        span_id(send),
        span_id(process),
    ]
    assert linked_by(receive) == {span_id(send)}
    assert [span.kind.name for span in (send, receive, process, settle)] == ["PRODUCER", "CLIENT", "CONSUMER", "CLIENT"]
    assert process.attributes is not None
    assert process.attributes["messaging.message.id"] == delivery.message_id
    assert process.attributes["messaging.consumer.group.name"] == "g"
    assert settle.attributes is not None
    assert settle.attributes["ackwise.outcome"] == "ack"


def test_retry_is_linked_and_not_nested(queue: ackwise.Connection, spans: InMemorySpanExporter) -> None:
    queue.push("q", 1)
    for _ in range(2):
        (delivery,) = queue.claim("q")
        with pytest.raises(ValueError, match="no such order"), delivery:
            raise ValueError("no such order")
    (send,), (first, second) = named(spans, "send q"), named(spans, "process q")
    assert parent_of(first) == span_id(send)
    assert (parent_of(second), linked_by(second)) == (None, {span_id(send)})
    assert not first.status.is_ok
    assert [event.name for event in first.events] == ["exception"]


def test_batch_has_one_send_span_in_every_message(queue: ackwise.Connection, spans: InMemorySpanExporter) -> None:
    queue.push_many(
        "q", [1, 2, ackwise.Item(payload=3, headers={"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"})]
    )
    batch = queue.claim("q", max=10)
    (send,) = named(spans, "send q")
    assert send.attributes is not None
    assert send.attributes["messaging.batch.message_count"] == 3
    own = int("b" * 16, 16)
    (receive,) = named(spans, "receive q")
    assert linked_by(receive) == {span_id(send), own}
    assert [delivery.json() for delivery in batch] == [1, 2, 3]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/push", {"queue": "q", "payloads": [1]}),
        ("/v1/messages", {"queue": "q", "messages": [{"payload": 1}]}),
        ("/v1/transaction", {"pushes": [{"queue": "q", "payloads": [1]}]}),
        ("/api/v1/push", {"items": [{"queue": "q", "payload": 1}]}),
        ("/api/v1/transaction", {"operations": [{"type": "push", "queue": "q", "payload": 1}]}),
        ("/queue/q/push", {"item": {"n": 1}}),
    ],
)
def test_request_context_goes_into_its_messages(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    parent, state = "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "vendor=1"
    with Running(f"sqlite:///{tmp_path}/traced.db") as running, httpx2.Client(base_url=running.url) as http:
        for headers in ({"traceparent": parent, "tracestate": state}, {"traceparent": "nonsense"}, {}):
            http.post(path, json=body, headers=headers).raise_for_status()
        with ackwise.connect(running.url) as connection:
            contexts = [delivery.headers for delivery in connection.claim("q", max=3)]
    assert contexts == [{"traceparent": parent, "tracestate": state}, {}, {}]


def test_transaction_sends_and_settles_in_one_trace(queue: ackwise.Connection, spans: InMemorySpanExporter) -> None:
    queue.push("q", 1)
    (delivery,) = queue.claim("q")
    with queue.transaction() as transaction:
        transaction.ack(delivery).push("next", 2)
    (send,) = named(spans, "send next")
    (settle,) = named(spans, "settle")
    assert parent_of(send) == span_id(settle)
    (later,) = queue.claim("next")
    with later:
        pass
    assert parent_of(named(spans, "process next")[0]) == span_id(send)


def test_connection_without_tracing_makes_no_span(url: str, spans: InMemorySpanExporter) -> None:
    with ackwise.connect(url, tracing=False) as connection:
        connection.push("q", 1)
        assert connection.claim("q")[0].headers == {}
    assert spans.get_finished_spans() == ()


async def _roundtrip(url: str) -> None:
    async with ackwise.connect_async(url) as connection:
        await connection.push("q", 1)
        async for delivery in connection.consume("q", stop_when_empty=True, wait=0):
            async with delivery:
                pass


def test_asynchronous_loop_makes_the_same_spans(url: str, spans: InMemorySpanExporter) -> None:
    asyncio.run(_roundtrip(url))
    (send,), (process,), settles = named(spans, "send q"), named(spans, "process q"), named(spans, "settle")
    assert parent_of(process) == span_id(send)
    assert any(parent_of(settle) == span_id(process) or span_id(process) in linked_by(settle) for settle in settles)
