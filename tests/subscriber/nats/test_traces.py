"""Trace context in the headers of NATS messages: written, read, and linked after a retry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from nats.js import JetStreamContext
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ackwise import Retry
from ackwise.subscriber import App, Message
from tests.subscriber.conftest import until
from tests.subscriber.nats.conftest import Order, run

PARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def ids_of(span: ReadableSpan) -> tuple[int, int]:
    """Trace and span."""
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def test_published_context_is_in_the_headers_and_the_parent(
    app: App, subject: str, spans: InMemorySpanExporter
) -> None:
    orders, seen = app.publisher(subject, Order), list[Message[Order]]()

    @app.subscriber(subject, durable="d")
    async def handle(msg: Message[Order]) -> None:
        seen.append(msg)

    async def job(app: App, js: JetStreamContext) -> None:
        with trace.get_tracer("test").start_as_current_span("caller"):
            await orders.publish(Order(1))
        await until(lambda: named(spans, f"process {subject}"))
        (stored,) = [await js.get_msg(subject, 1)]
        assert stored.headers is not None
        assert stored.headers["traceparent"] == seen[0].headers["traceparent"]

    run(app, job)
    (caller,), (send,), (process,) = (
        named(spans, name) for name in ("caller", f"send {subject}", f"process {subject}")
    )
    assert (parent_of(send), parent_of(process)) == (ids_of(caller), ids_of(send))
    assert process.attributes is not None
    assert process.attributes["messaging.destination.name"] == subject


def test_context_of_another_nats_client_is_the_parent(app: App, subject: str, spans: InMemorySpanExporter) -> None:
    @app.subscriber(subject, durable="d")
    async def handle(order: Order) -> None: ...

    async def job(app: App, js: JetStreamContext) -> None:
        await js.publish(subject, b'{"id": 1}', headers={"traceparent": PARENT})
        await js.publish(subject, b'{"id": 2}', headers={"traceparent": "nonsense"})
        await until(lambda: len(named(spans, f"process {subject}")) == 2)

    run(app, job)
    parents = [parent_of(span) for span in named(spans, f"process {subject}")]
    assert parents == [(int("a" * 32, 16), int("b" * 16, 16)), None]


def test_retry_over_nats_is_linked_and_not_nested(app: App, subject: str, spans: InMemorySpanExporter) -> None:
    orders = app.publisher(subject, Order)

    @app.subscriber(subject, durable="d")
    async def handle(msg: Message[Order]) -> None:
        if msg.attempt == 1:
            raise Retry(delay=0)

    async def job(app: App, js: JetStreamContext) -> None:
        await orders.publish(Order(1))
        await until(lambda: len(named(spans, f"process {subject}")) == 2)

    run(app, job)
    (send,), (first, second) = named(spans, f"send {subject}"), named(spans, f"process {subject}")
    assert (parent_of(first), parent_of(second)) == (ids_of(send), None)
    assert [link.context.span_id for link in second.links] == [ids_of(send)[1]]
