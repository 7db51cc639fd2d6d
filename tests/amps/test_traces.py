"""OpenTelemetry spans of the AMPS client: one trace from the publish to the ack, also across other protocols."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ackwise
from ackwise.amps import AsyncClient, Client, Message
from tests.amps.inbox import Inbox
from tests.amps.orders import ORDERS
from tests.broker.watched import until
from tests.server.running import Running


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


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def linked_by(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def test_one_trace_spans_publish_handler_and_ack(uri: str, spans: InMemorySpanExporter) -> None:
    inbox = Inbox()
    with Client("traced").connect(uri).logon().set_auto_ack(True) as client:
        client.subscribe(ORDERS, inbox)
        with trace.get_tracer("test").start_as_current_span("caller"):
            client.publish(ORDERS, "a")
        (message,) = inbox.until(1)
        until(lambda: bool(named(spans, "settle")))
    (caller,), (send,) = named(spans, "caller"), named(spans, "send orders")
    (process,), (settle,) = named(spans, "process orders"), named(spans, "settle")
    assert (parent_of(send), parent_of(process)) == (id_of(caller), id_of(send))
    assert linked_by(settle) == [id_of(process)]
    assert "traceparent" in message.headers
    assert settle.attributes is not None
    assert settle.attributes["ackwise.outcome"] == "ack"


def test_context_crosses_from_http_to_amps_and_back(uri: str, server: Running, spans: InMemorySpanExporter) -> None:
    with ackwise.connect(server.url) as queue, Client("traced").connect(uri).logon() as client:
        with trace.get_tracer("test").start_as_current_span("caller"):
            queue.push("orders", 1)
            client.publish("queue://other", "2")
        inbox = Inbox()
        client.subscribe(ORDERS, inbox)
        inbox.until(1)
        until(lambda: bool(named(spans, "process orders")))
        (delivery,) = queue.claim("other")
        with delivery:
            pass
    (process,), (other,) = named(spans, "process orders"), named(spans, "process other")
    assert parent_of(other) == id_of(named(spans, "send other")[0])
    assert process.context is not None
    assert other.context is not None
    assert process.context.trace_id == other.context.trace_id


def test_cancelled_message_is_linked_and_not_nested(
    uri: str, spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "ackwise.amps")
    inbox = Inbox(b"bad")
    with Client("traced").connect(uri).logon() as client:
        client.subscribe(ORDERS, inbox, on_error="cancel")
        client.publish(ORDERS, "bad")
        inbox.until(2)
        until(lambda: len(named(spans, "process orders")) >= 2)
    (send,), (first, second) = named(spans, "send orders"), named(spans, "process orders")[:2]
    assert parent_of(first) == id_of(send)
    assert (parent_of(second), linked_by(second)) == (None, [id_of(send)])
    assert [message.attempt for message in inbox.messages[:2]] == [1, 2]
    assert named(spans, "settle")[0].attributes["ackwise.outcome"] == "retry"  # type: ignore[index]


def test_async_client_makes_the_same_spans(uri: str, spans: InMemorySpanExporter) -> None:
    async def work() -> None:
        handled = asyncio.Event()

        async def handle(message: Message) -> None:
            trace.get_tracer("test").start_span("inner").end()
            handled.set()

        async with await (await AsyncClient("traced").connect(uri)).logon() as client:
            await client.subscribe(ORDERS, handle)
            await client.publish(ORDERS, "a", confirm=False)
            await handled.wait()

    asyncio.run(asyncio.wait_for(work(), 60))
    (send,), (process,), (inner,) = (named(spans, name) for name in ("send orders", "process orders", "inner"))
    assert (parent_of(process), parent_of(inner)) == (id_of(send), id_of(process))


def test_client_without_tracing_sends_no_context(
    uri: str, orders: ackwise.Connection, spans: InMemorySpanExporter
) -> None:
    inbox = Inbox()
    with Client("plain", tracing=False).connect(uri).logon() as client:
        client.subscribe(ORDERS, inbox)
        client.publish(ORDERS, "a")
        orders.push("orders", 1)
        messages = inbox.until(2)
    assert [message.headers for message in messages] == [{}, {}]
    assert named(spans, "process orders") == []
