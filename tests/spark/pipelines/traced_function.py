"""A pipeline's function in a process that has set up OpenTelemetry: this module is imported where the function runs."""

from __future__ import annotations

from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from ackwise.spark.pipelines.record_handler import Record


class SetUp:
    """The function as an object. Its unpickling sets OpenTelemetry up, as a user's module does when it is imported."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (set_up, ())

    def __call__(self, order: dict[str, Any], record: Record) -> dict[str, Any]:
        context = trace.get_current_span().get_span_context()
        return {"trace": f"{context.trace_id:032x}", "header": record.headers["traceparent"]}


def set_up() -> SetUp:
    trace.set_tracer_provider(TracerProvider())
    return SetUp()
