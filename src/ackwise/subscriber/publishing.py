"""Typed publishers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from ackwise.core.errors import BadInput
from ackwise.core.limits import Seconds
from ackwise.subscriber import cloudevents, tracing
from ackwise.subscriber.codecs import Codec, content_type_of
from ackwise.subscriber.feeds.feed import Link

T = TypeVar("T")


class Publisher(Generic[T]):
    """Puts payloads of one type into one queue."""

    def __init__(self, queue: str, kind: type[T], link: Callable[[], Link], codec: Codec, source: str | None) -> None:
        self.queue, self.kind = queue, kind
        self._link, self._source = link, source
        self._content_type = content_type_of(codec, kind)
        self._write = codec.writer(kind)

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
        body = self._write(payload)
        told: dict[str, str] = {}
        if self._source is not None:
            told = cloudevents.attributes(self.kind, self._source, self._content_type)
        told.update(headers or {})
        with tracing.publishing(self.queue, told):
            return await self._link().publish(
                self.queue,
                body,
                headers=told,
                content_type=self._content_type,
                dedup_id=dedup_id,
                delay=delay,
                partition=partition,
            )

    def __repr__(self) -> str:
        return f"<Publisher of {getattr(self.kind, '__name__', self.kind)} to {self.queue}>"
