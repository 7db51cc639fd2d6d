# Generated from ../aio/subscription.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Subscription: messages for a handler or an iterator."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ackwise.amps.message import Message
from ackwise.client.concurrency.threads import Signal, Worker, call
from ackwise.wire.amps import Header

if TYPE_CHECKING:
    from ackwise.amps.sync.client import Client

log = logging.getLogger("ackwise.amps")

Handler = Callable[[Message], object]
OnError = Literal["wait", "cancel"]


class Subscription:
    """A subscription's messages in the order of their arrival. Iterate over it unless it has a handler.

    With auto-ack the client acks a message when its handler returns, or when you ask for the next message.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        sub_id: str,
        *,
        options: str,
        handler: Handler | None,
        on_error: OnError,
        content_filter: str | None = None,
    ) -> None:
        self._client, self.topic, self.sub_id, self._options = client, topic, sub_id, options
        self._handler, self._on_error, self._filter = handler, on_error, content_filter
        self._messages: deque[Message] = deque()
        self._arrived = Signal()
        self._ended = False
        self.refusals = 0
        """Refusals in a row after reconnects."""
        self.current: Message | None = None
        """The message that the handler or the loop works on."""
        self._worker = Worker(self._work, f"amps {topic}") if handler is not None else None

    def command(self) -> Header:
        """The subscribe command."""
        options, content_filter = self._options or None, self._filter or None
        return Header(c="subscribe", t=self.topic, sub_id=self.sub_id, opts=options, filter=content_filter)

    # messages from the server

    def take(self, message: Message) -> None:
        """Queue a message, unless the subscription has ended."""
        if not self._ended:
            self._messages.append(message)
            self._arrived.set()

    def clear(self) -> None:
        """Drop queued messages after a lost connection: the server delivers them again."""
        self._messages.clear()

    def end(self) -> None:
        """End the subscription: drop queued messages and wake the waiting consumer."""
        self._ended = True
        self._messages.clear()
        self._arrived.set()

    def join(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the running handler."""
        if self._worker is not None:
            self._worker.join(timeout)

    # messages to the handler or the loop

    def _next(self) -> Message | None:
        """Wait for the next message. Returns None after the end."""
        while True:
            self._arrived.clear()
            if self._ended:
                return None
            try:
                return self._messages.popleft()
            except IndexError:
                self._arrived.wait()

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> Message:
        previous, self.current = self.current, None
        if previous is not None:
            self._client.handled(previous)
        self.current = self._next()
        if self.current is None:
            raise StopIteration
        return self.current

    def _work(self) -> None:
        assert self._handler is not None
        while (message := self._next()) is not None:
            self.current = message
            try:
                with self._client.spans.process(message):
                    call(self._handler, message)
            except Exception:
                log.exception("the handler of %s failed", self.topic)
                if self._on_error == "cancel":
                    self._client.failed(message)
            else:
                self._client.handled(message)
            self.current = None

    def unsubscribe(self) -> None:
        """End this subscription. See the client's `unsubscribe`."""
        self._client.unsubscribe(self)
