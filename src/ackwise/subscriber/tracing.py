"""OpenTelemetry spans of handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ackwise.client.tracing import is_configured, process_span
from ackwise.core.extras import is_installed
from ackwise.subscriber.message import Message

if TYPE_CHECKING:
    from ackwise.subscriber.handler_runner import Call

INSTALLED = is_installed("opentelemetry")
__all__ = ["INSTALLED", "is_configured", "trace_handler"]


async def trace_handler(msg: Message[Any], call_next: Call) -> Any:
    """Middleware that runs a handler in a span."""
    with process_span(msg.queue, msg.id, msg.headers, msg.attempt, delivery_id=msg.span_key):
        return await call_next(msg)
