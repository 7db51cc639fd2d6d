"""Typed publishers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Generic, Protocol, TypeVar

from ackwise.core.errors import BadInput
from ackwise.core.validation import Seconds
from ackwise.subscriber import cloudevents, tracing
from ackwise.subscriber.codecs import Codec, Write, content_type_of
from ackwise.subscriber.feeds.port import TransportLink

T = TypeVar("T")


class PublisherOwner(Protocol):
    """The router that declared a publisher. It leads to the app, which has the options of publishing."""

    @property
    def source(self) -> str | None: ...

    @property
    def traced(self) -> bool: ...

    def link(self) -> TransportLink: ...


class Publisher(Generic[T]):
    """Publishes payloads of one type to one queue."""

    def __init__(self, queue: str, kind: type[T], owner: PublisherOwner, codec: Codec | None) -> None:
        self.queue, self.kind, self.codec = queue, kind, codec
        self._owner = owner
        self._write: Write | None = None

    def include(self, prefix: str, codec: Codec | None) -> None:
        """Add the prefix of an including router, and its codec if the publisher has none."""
        self.queue = prefix + self.queue
        self.codec = self.codec or codec
        if self._write is None and self.codec is not None:
            try:
                self._write = self.codec.writer(self.kind)
            except Exception as problem:
                raise TypeError(f"the publisher of {self.queue} cannot write {self.kind!r}: {problem}") from problem

    async def publish(
        self,
        payload: T,
        *,
        headers: Mapping[str, str] | None = None,
        dedup_id: str | None = None,
        delay: Seconds | None = None,
        partition: str | None = None,
    ) -> str:
        """Publish a payload. Returns the message id when the message is stored.

        A second publish with the same `dedup_id` stores nothing. `delay` is in seconds.
        """
        if payload is None:
            raise BadInput(f"{self.queue}: there is nothing to publish")
        link, source = self._owner.link(), self._owner.source
        assert self._write is not None, "an app has a codec"
        assert self.codec is not None
        body, content_type = self._write(payload), content_type_of(self.codec, self.kind)
        all_headers: dict[str, str] = {}
        if source is not None:
            all_headers = cloudevents.attributes(self.kind, source, content_type)
        all_headers.update(headers or {})
        with tracing.trace_publish(self.queue, all_headers) if self._owner.traced else nullcontext():
            return await link.publish(
                self.queue,
                body,
                headers=all_headers,
                content_type=content_type,
                dedup_id=dedup_id,
                delay=delay,
                partition=partition,
            )

    def __repr__(self) -> str:
        return f"<Publisher of {getattr(self.kind, '__name__', self.kind)} to {self.queue}>"
