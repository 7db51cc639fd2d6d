"""Typed publishers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator, Mapping
from contextlib import nullcontext
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from ackwise.client import tracing
from ackwise.core.errors import BadInput
from ackwise.core.validation import Seconds
from ackwise.subscriber import cloudevents
from ackwise.subscriber.codecs import Codec, Write, content_type_of
from ackwise.subscriber.feeds.port import TransportLink

T = TypeVar("T")


class PublisherOwner(Protocol):
    """The router that declared a publisher. It leads to the app, which has the options of publishing."""

    @property
    def source(self) -> str | None: ...

    @property
    def traced(self) -> bool: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None: ...

    def link(self) -> TransportLink: ...


class Published(Awaitable[str]):
    """The id of a message that is stored already. Awaiting it returns the id at once."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id

    def __await__(self) -> Generator[Any, None, str]:
        yield from ()
        return self.message_id

    def __repr__(self) -> str:
        return f"<Published {self.message_id}>"


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


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

    def publish(
        self,
        payload: T,
        *,
        headers: Mapping[str, str] | None = None,
        dedup_id: str | None = None,
        delay: Seconds | None = None,
        partition: str | None = None,
    ) -> Awaitable[str]:
        """Publish a payload. The awaited result is the message id, when the message is stored.

        In an async function, await it. In a thread, such as a `def` handler, the call itself waits until the message is
        stored, and you need not await it. A second publish with the same `dedup_id` stores nothing. `delay` is in
        seconds.
        """
        sending = self._publish(payload, headers=headers, dedup_id=dedup_id, delay=delay, partition=partition)
        home, running = self._owner.loop, _running_loop()
        if home is None or running is home:
            return sending if running is not None else self._fail(sending)
        stored = asyncio.run_coroutine_threadsafe(sending, home)
        return asyncio.wrap_future(stored) if running is not None else Published(stored.result())

    def _fail(self, sending: Coroutine[Any, Any, str]) -> NoReturn:
        """Raise the error of a thread that publishes before the app is started."""
        sending.close()
        self._owner.link()
        raise RuntimeError("the app is not started")

    async def _publish(
        self,
        payload: T,
        *,
        headers: Mapping[str, str] | None,
        dedup_id: str | None,
        delay: Seconds | None,
        partition: str | None,
    ) -> str:
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
        spanned = self._owner.traced and not link.makes_spans
        with tracing.send_span(self.queue, headers=all_headers) if spanned else nullcontext():
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
