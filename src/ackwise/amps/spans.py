"""OpenTelemetry spans of the AMPS client: `send`, `process` and `settle`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ackwise.amps.message import Message
from ackwise.client import tracing
from ackwise.core.commands import ByDelivery, Settlement
from ackwise.core.settlement import Outcome
from ackwise.wire import trace_context
from ackwise.wire.amps import Header

_OUTCOMES = {None: Outcome.ACK, "cancel": Outcome.RETRY, "expire": Outcome.REJECT}
_QUEUE = "queue://"


class ClientSpans:
    """Spans of one client. Without tracing it makes none."""

    def __init__(self, traced: bool) -> None:
        self.traced = traced

    def send(self, header: Header) -> AbstractContextManager[None]:
        """Span of a publish. Its context goes into the header of the frame."""
        return _send(header) if self.traced else nullcontext()

    def process(self, message: Message) -> AbstractContextManager[None]:
        """Span of a handler's work on a message."""
        if not self.traced:
            return nullcontext()
        delivery_id = message.bookmark or None
        queue = _destination(message.topic)
        return tracing.process_span(queue, "", message.headers, message.attempt, delivery_id=delivery_id)

    def settle(self, bookmarks: Iterable[str], option: str | None = None) -> AbstractContextManager[None]:
        """Span of a settlement, linked to the `process` spans of its messages."""
        if not self.traced:
            return nullcontext()
        selectors = map(ByDelivery, bookmarks)
        return tracing.settle_span([Settlement(selector=each, outcome=_OUTCOMES[option]) for each in selectors])


@contextmanager
def _send(header: Header) -> Iterator[None]:
    context: dict[str, str] = {}
    with tracing.send_span(_destination(header.subject), headers=context):
        header.traceparent, header.tracestate = context.get(trace_context.PARENT), context.get(trace_context.STATE)
        yield


def _destination(topic: str) -> str:
    """The name of the queue, as other clients name it, or the plain topic."""
    return topic.removeprefix(_QUEUE)
