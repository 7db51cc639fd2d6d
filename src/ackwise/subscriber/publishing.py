"""Typed publishers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Generic, Protocol, TypeVar

from ackwise.core.errors import BadInput
from ackwise.core.limits import Seconds
from ackwise.subscriber import cloudevents, tracing
from ackwise.subscriber.codecs import Codec, Write, content_type_of
from ackwise.subscriber.feeds.feed import Link

T = TypeVar("T")


class Home(Protocol):
    """Where a publisher was declared: what it does not say itself is said there, or above, when it publishes."""

    @property
    def source(self) -> str | None: ...

    @property
    def traced(self) -> bool: ...

    def link(self) -> Link: ...


class Publisher(Generic[T]):
    """Puts payloads of one type into one queue."""

    def __init__(self, queue: str, kind: type[T], home: Home, codec: Codec | None) -> None:
        self.queue, self.kind, self.codec = queue, kind, codec
        self._home = home
        self._write: Write | None = None

    def taken(self, prefix: str, codec: Codec | None) -> None:
        """Somebody took it in, who has a prefix and may have a codec."""
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
        """When this returns it is stored; the message's id. The same `dedup_id` again is stored once."""
        if payload is None:
            raise BadInput(f"{self.queue}: there is nothing to publish")
        link, source = self._home.link(), self._home.source
        assert self._write is not None, "an app has a codec"
        assert self.codec is not None
        body, content_type = self._write(payload), content_type_of(self.codec, self.kind)
        told: dict[str, str] = {}
        if source is not None:
            told = cloudevents.attributes(self.kind, source, content_type)
        told.update(headers or {})
        with tracing.publishing(self.queue, told) if self._home.traced else nullcontext():
            return await link.publish(
                self.queue,
                body,
                headers=told,
                content_type=content_type,
                dedup_id=dedup_id,
                delay=delay,
                partition=partition,
            )

    def __repr__(self) -> str:
        return f"<Publisher of {getattr(self.kind, '__name__', self.kind)} to {self.queue}>"
