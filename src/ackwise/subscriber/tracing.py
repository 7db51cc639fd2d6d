"""OpenTelemetry, where it is installed: a span for each publish and each handling, joined by W3C headers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ackwise.subscriber.message import Message

if TYPE_CHECKING:
    from ackwise.subscriber.handling import Call

try:
    from opentelemetry import propagate, trace

    INSTALLED = True
except ImportError:
    INSTALLED = False

SYSTEM = "ackwise"


@contextmanager
def publishing(queue: str, headers: dict[str, str]) -> Iterator[None]:
    """The headers carry this span, so that whoever handles the message hangs under it."""
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.destination.name": queue,
        "messaging.operation.type": "send",
    }
    tracer = trace.get_tracer("ackwise.subscriber")
    with tracer.start_as_current_span(f"send {queue}", kind=trace.SpanKind.PRODUCER, attributes=attributes):
        propagate.inject(headers)
        yield


async def handling(msg: Message[Any], call_next: Call) -> Any:
    """The outermost middleware of an app that is traced."""
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


def wanted() -> bool:
    """Whether this program has set up OpenTelemetry; else spans would cost time and go nowhere."""
    return INSTALLED and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
