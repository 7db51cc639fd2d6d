"""Trace context of a request: copies the headers `traceparent` and `tracestate` into pushed messages."""

from __future__ import annotations

from collections.abc import Iterable

from ackwise.core.commands import Push
from ackwise.protocols.http_request import Call
from ackwise.wire import trace_context

PARENT, STATE = trace_context.PARENT.encode(), trace_context.STATE.encode()


def has_trace(call: Call) -> bool:
    """Whether the request has the header `traceparent`. Reads the scope, because a push is a hot path."""
    return any(name == PARENT for name, _ in call.scope["headers"])


def traced(pushes: Iterable[Push], call: Call) -> list[Push]:
    """The pushes with the trace context of the request. Call it only if `has_trace`."""
    parent, state = call.header(PARENT), call.header(STATE)
    context = trace_context.context_of(parent.decode("latin-1"), state.decode("latin-1"))
    return [trace_context.with_context(push, context) for push in pushes]
