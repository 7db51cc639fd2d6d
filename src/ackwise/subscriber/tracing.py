"""OpenTelemetry spans of publishers and handlers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ackwise.subscriber.message import Message

if TYPE_CHECKING:
    from ackwise.subscriber.handler_runner import Call

try:
    from opentelemetry import propagate, trace

    INSTALLED = True
except ImportError:
    INSTALLED = False

SYSTEM = "ackwise"


@contextmanager
def trace_publish(queue: str, headers: dict[str, str]) -> Iterator[None]:
    """Span of a publish. Its context goes into the headers, so that the handler's span becomes its child."""
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.destination.name": queue,
        "messaging.operation.type": "send",
    }
    tracer = trace.get_tracer("ackwise.subscriber")
    with tracer.start_as_current_span(f"send {queue}", kind=trace.SpanKind.PRODUCER, attributes=attributes):
        propagate.inject(headers)
        yield


async def trace_handler(msg: Message[Any], call_next: Call) -> Any:
    """Middleware that runs a handler in a span."""
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.destination.name": msg.queue,
        "messaging.operation.type": "process",
        "messaging.message.id": msg.id,
        "messaging.message.body.size": len(msg.raw),
        "messaging.delivery.attempt": msg.attempt,
    }
    tracer = trace.get_tracer("ackwise.subscriber")
    with tracer.start_as_current_span(
        f"process {msg.queue}",
        context=propagate.extract(msg.headers),
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
    ):
        return await call_next(msg)


def is_configured() -> bool:
    """Whether the program has set up OpenTelemetry. Otherwise spans would only cost time."""
    return INSTALLED and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
