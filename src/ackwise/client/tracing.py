"""OpenTelemetry spans: `send`, `receive`, `process` and `settle`, named as OpenTelemetry's messaging conventions say.

The W3C context of a `send` span travels in the headers of its messages (`traceparent`, `tracestate`). The first
`process` span of a message is a child of it. The span of a retry is not: it is linked, because a trace would otherwise
last as long as the message fails.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ackwise.core.commands import ByDelivery, Claim, Push, Settlement
from ackwise.core.extras import is_installed, missing
from ackwise.core.messages import Message
from ackwise.wire import trace_context

if TYPE_CHECKING:
    from opentelemetry.trace import Link, SpanContext, SpanKind, Tracer

SYSTEM = "ackwise"
MOST_LINKS = 128
"""Links of one span, as many as OpenTelemetry keeps by default."""

Attributes = dict[str, str | int]


def is_configured() -> bool:
    """Whether the program has set up OpenTelemetry. Imports nothing: spans without a set-up would only cost time."""
    trace = sys.modules.get("opentelemetry.trace")
    return trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def is_wanted(tracing: bool | None) -> bool:
    """Whether to make spans. None means: if the program has set up OpenTelemetry."""
    if tracing and not is_installed("opentelemetry"):
        raise missing("otel", "tracing=True", "opentelemetry")
    return is_configured() if tracing is None else tracing


def _tracer() -> Tracer:
    from opentelemetry import trace

    return trace.get_tracer("ackwise")


def _attributes(operation: str, queue: str | None, count: int = 1) -> Attributes:
    attributes: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    if queue is not None:
        attributes["messaging.destination.name"] = queue
    if count != 1:
        attributes["messaging.batch.message_count"] = count
    return attributes


def _name(operation: str, queue: str | None) -> str:
    return operation if queue is None else f"{operation} {queue}"


def _kind(name: str) -> SpanKind:
    from opentelemetry.trace import SpanKind

    return SpanKind[name]


def _links(headers: Iterable[Mapping[str, str]]) -> list[Link]:
    """Links to the contexts in these headers, each context once."""
    from opentelemetry import propagate, trace

    contexts: dict[int, SpanContext] = {}
    for carrier in headers:
        if trace_context.PARENT in carrier and len(contexts) < MOST_LINKS:
            span = trace.get_current_span(propagate.extract(carrier)).get_span_context()
            contexts[span.span_id] = span
    return [trace.Link(context) for context in contexts.values() if context.is_valid]


@contextmanager
def send_span(queue: str, count: int = 1, headers: dict[str, str] | None = None) -> Iterator[None]:
    """Span of a push. Its context goes into `headers`."""
    from opentelemetry import propagate

    attributes = _attributes("send", queue, count)
    with _tracer().start_as_current_span(_name("send", queue), kind=_kind("PRODUCER"), attributes=attributes):
        if headers is not None:
            propagate.inject(headers)
        yield


def with_context(push: Push) -> Push:
    """The push with the current span's context in the headers of its messages."""
    from opentelemetry import propagate

    context: dict[str, str] = {}
    propagate.inject(context)
    return trace_context.with_context(push, context)


def receive_span(claim: Claim, messages: Sequence[Message], started_at: int) -> None:
    """Span of a claim that began at `started_at` and returned messages. It is linked to their contexts."""
    attributes = _attributes("receive", claim.queue, len(messages))
    if claim.group is not None:
        attributes["messaging.consumer.group.name"] = claim.group
    links = _links(message.headers for message in messages)
    _tracer().start_span(
        _name("receive", claim.queue), kind=_kind("CLIENT"), attributes=attributes, links=links, start_time=started_at
    ).end()


class RecentSpans:
    """The `process` spans of the newest deliveries by delivery id. A later settlement is linked to them."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._contexts: dict[str, SpanContext] = {}

    def add(self, delivery_id: str, context: SpanContext) -> None:
        with self._lock:
            if len(self._contexts) >= self._most:
                del self._contexts[next(iter(self._contexts))]
            self._contexts[delivery_id] = context

    def take(self, delivery_ids: Iterable[str]) -> list[SpanContext]:
        with self._lock:
            contexts = [self._contexts.pop(delivery_id, None) for delivery_id in delivery_ids]
        return [context for context in contexts if context is not None]


_recent = RecentSpans(10_000)


@contextmanager
def settle_span(settlements: Sequence[Settlement]) -> Iterator[None]:
    """Span of a settlement, linked to the `process` spans of its deliveries that are not its parent."""
    from opentelemetry import trace

    attributes = _attributes("settle", None, len(settlements))
    attributes["ackwise.outcome"] = ",".join(sorted({settlement.outcome.value for settlement in settlements}))
    parent = trace.get_current_span().get_span_context()
    selectors = (settlement.selector for settlement in settlements)
    spans = _recent.take(selector.delivery_id for selector in selectors if isinstance(selector, ByDelivery))
    links = [trace.Link(span) for span in spans[:MOST_LINKS] if span.span_id != parent.span_id]
    with _tracer().start_as_current_span("settle", kind=_kind("CLIENT"), attributes=attributes, links=links):
        yield


@contextmanager
def process_span(
    queue: str,
    message_id: str,
    headers: Mapping[str, str],
    attempt: int,
    *,
    group: str | None = None,
    delivery_id: str | None = None,
) -> Iterator[None]:
    """Span of the work on one message: a child of its `send` span, or linked to it if this is a retry."""
    from opentelemetry import context, propagate

    attributes = _attributes("process", queue)
    attributes["messaging.delivery.attempt"] = attempt
    if message_id:
        attributes["messaging.message.id"] = message_id
    if group is not None:
        attributes["messaging.consumer.group.name"] = group
    is_retry = attempt > 1
    with _tracer().start_as_current_span(
        _name("process", queue),
        context=context.Context() if is_retry else propagate.extract(headers),
        kind=_kind("CONSUMER"),
        attributes=attributes,
        links=_links((headers,)) if is_retry else None,
    ) as span:
        if delivery_id is not None:
            _recent.add(delivery_id, span.get_span_context())
        yield
