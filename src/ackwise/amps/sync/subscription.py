# Generated from ../aio/subscription.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""What a client subscribed to: messages for its handler, or for whoever iterates."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ackwise.amps.message import Message
from ackwise.client.beside.threads import Signal, Worker, call
from ackwise.core.amps.headers import Header

if TYPE_CHECKING:
    from ackwise.amps.sync.client import Client

log = logging.getLogger("ackwise.amps")

Handler = Callable[[Message], object]
OnError = Literal["wait", "cancel"]


class Subscription:
    """Messages in the order of their arrival. Iterate over it unless it has a handler.

    With auto-ack a message is acked when its handler returns, or when the one after it is asked for.
    """

    def __init__(
        self, client: Client, topic: str, sub_id: str, options: str, handler: Handler | None, on_error: OnError
    ) -> None:
        self._client, self.topic, self.sub_id, self._options = client, topic, sub_id, options
        self._handler, self._on_error = handler, on_error
        self._messages: deque[Message] = deque()
        self._arrived = Signal()
        self._ended = False
        self.refusals = 0
        """In a row, when it was to be made again."""
        self.current: Message | None = None
        """What is being worked on."""
        self._worker = Worker(self._work, f"amps {topic}") if handler is not None else None

    def command(self) -> Header:
        return Header(c="subscribe", t=self.topic, sub_id=self.sub_id, opts=self._options or None)

    # what comes in

    def take(self, message: Message) -> None:
        if not self._ended:
            self._messages.append(message)
            self._arrived.set()

    def clear(self) -> None:
        """The connection is lost: what it brought will be delivered again."""
        self._messages.clear()

    def end(self) -> None:
        """Nothing more comes; whoever waits is told."""
        self._ended = True
        self._messages.clear()
        self._arrived.set()

    def join(self, timeout: float) -> None:
        """Until its handler is done with the message it has."""
        if self._worker is not None:
            self._worker.join(timeout)

    # what goes out

    def _next(self) -> Message | None:
        """The next message; None at the end."""
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
                call(self._handler, message)
            except Exception:
                log.exception("the handler of %s failed", self.topic)
                if self._on_error == "cancel":
                    self._client.failed(message)
            else:
                self._client.handled(message)
            self.current = None

    def unsubscribe(self) -> None:
        self._client.unsubscribe(self)
