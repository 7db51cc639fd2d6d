"""What a client subscribed to: messages for its handler, or for whoever iterates."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ackwise.amps.message import Message
from ackwise.client.beside.aio import AsyncSignal, AsyncWorker, call
from ackwise.core.amps.headers import Header

if TYPE_CHECKING:
    from ackwise.amps.aio.client import AsyncClient

log = logging.getLogger("ackwise.amps")

Handler = Callable[[Message], object]
OnError = Literal["wait", "cancel"]


class AsyncSubscription:
    """Messages in the order of their arrival. Iterate over it unless it has a handler.

    With auto-ack a message is acked when its handler returns, or when the one after it is asked for.
    """

    def __init__(
        self, client: AsyncClient, topic: str, sub_id: str, options: str, handler: Handler | None, on_error: OnError
    ) -> None:
        self._client, self.topic, self.sub_id, self._options = client, topic, sub_id, options
        self._handler, self._on_error = handler, on_error
        self._messages: deque[Message] = deque()
        self._arrived = AsyncSignal()
        self._ended = False
        self.refusals = 0
        """In a row, when it was to be made again."""
        self.current: Message | None = None
        """What is being worked on."""
        self._worker = AsyncWorker(self._work, f"amps {topic}") if handler is not None else None

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

    async def join(self, timeout: float) -> None:
        """Until its handler is done with the message it has."""
        if self._worker is not None:
            await self._worker.join(timeout)

    # what goes out

    async def _next(self) -> Message | None:
        """The next message; None at the end."""
        while True:
            self._arrived.clear()
            if self._ended:
                return None
            try:
                return self._messages.popleft()
            except IndexError:
                await self._arrived.wait()

    def __aiter__(self) -> AsyncSubscription:
        return self

    async def __anext__(self) -> Message:
        previous, self.current = self.current, None
        if previous is not None:
            self._client.handled(previous)
        self.current = await self._next()
        if self.current is None:
            raise StopAsyncIteration
        return self.current

    async def _work(self) -> None:
        assert self._handler is not None
        while (message := await self._next()) is not None:
            self.current = message
            try:
                await call(self._handler, message)
            except Exception:
                log.exception("the handler of %s failed", self.topic)
                if self._on_error == "cancel":
                    await self._client.failed(message)
            else:
                self._client.handled(message)
            self.current = None

    async def unsubscribe(self) -> None:
        await self._client.unsubscribe(self)
