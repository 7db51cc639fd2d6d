"""AMPS client."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from ackwise.amps.aio.reconnect import AsyncReconnectingClient
from ackwise.amps.aio.subscription import AsyncSubscription, Handler, OnError
from ackwise.amps.message import CommandFailed, Disconnected, body_of
from ackwise.client.tracing import is_wanted
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.wire.amps import TRACED, Header, packed

TIMEOUT = 10.0


class AsyncClient(AsyncReconnectingClient):
    """A client for AMPS-style queues that reconnects to one of several servers.

    The client calls `on_ack_error(problem)` when it cannot send batched acks. It sends them again later. It also
    calls `on_ack_error` when the server refuses a subscription after a reconnect. That subscription has ended. It calls
    `on_disconnect(problem, dropped)` when it lost the connection and with it `dropped` batched acks. `timeout` is how
    many seconds the client waits for an answer. With `tracing` the client makes OpenTelemetry spans, by default if the
    program has set up OpenTelemetry.

    Any number of tasks of one event loop may share it.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        on_ack_error: Callable[[AckwiseError], object] | None = None,
        on_disconnect: Callable[[str, int], object] | None = None,
        timeout: float = TIMEOUT,
        tracing: bool | None = None,
    ) -> None:
        super().__init__(name, timeout, on_ack_error, on_disconnect, traced=is_wanted(tracing))
        self._last_sub = 0

    async def publish(self, topic: str, data: object, *, expiration: float | None = None, confirm: bool = True) -> None:
        """Publish bytes, text, or any value as JSON. When `publish` returns, the message is stored.

        With `confirm=False` it returns when the message is sent. `expiration` is in seconds.
        """
        if not topic:
            raise CommandFailed("topic is required for publish")
        header = Header(c="p", t=topic, e=expiration)
        connection = self._require_connection()
        with self.spans.send(header):
            if confirm:
                await connection.command(header, self._timeout, body_of(data), "persisted")
            else:
                await connection.send(packed(header, body_of(data)))

    async def flush(self) -> None:
        """Wait until the server has stored everything that was published so far."""
        await self._require_connection().command(Header(c="flush"), self._timeout, kind="completed")

    async def subscribe(
        self,
        topic: str,
        handler: Handler | None = None,
        *,
        max_backlog: int | None = None,
        group: str | None = None,
        sub_id: str | None = None,
        on_error: OnError = "wait",
        options: str = "",
        filter: str | None = None,
    ) -> AsyncSubscription:
        """Subscribe to a topic. The topic of a queue is `queue://name`.

        With a `handler` the client calls it for each message. Without one, iterate over the returned subscription. The
        server delivers at most `max_backlog` messages ahead of their acks, by default twice the ack batch size. If the
        handler raises, the message comes back when its lease expires, or at once with `on_error="cancel"`. With a
        `filter` such as `/order/total > 5` the server delivers only messages that match.
        """
        if not topic:
            raise CommandFailed("topic is required for subscribe")
        if on_error not in ("wait", "cancel"):
            raise BadInput(f"on_error is wait or cancel, not {on_error!r}")
        connection = self._require_connection()
        backlog = 2 * self.ack_batch_size if max_backlog is None else max_backlog
        parts = [f"max_backlog={backlog}", *([f"group={group}"] if group else []), *([options] if options else [])]
        if self.spans.traced:
            parts.append(TRACED)
        name = self._name(sub_id)
        subscription = AsyncSubscription(
            self, topic, name, options=",".join(parts), handler=handler, on_error=on_error, content_filter=filter
        )
        self._subscriptions[name] = subscription
        try:
            self.note_backlog(subscription, await connection.command(subscription.command(), self._timeout))
        except BaseException:
            self._subscriptions.pop(name, None)
            subscription.end()
            # The server may have made the subscription, or may still make it.
            with suppress(Disconnected):
                await connection.send(packed(Header(c="unsubscribe", sub_id=name)))
            raise
        return subscription

    def _name(self, sub_id: str | None) -> str:
        with self._guard:
            self._last_sub += 1
            name = sub_id or str(self._last_sub)
        if name in self._subscriptions:
            raise CommandFailed(f"there is a subscription {name!r} already")
        return name

    async def unsubscribe(self, subscription: AsyncSubscription | str) -> None:
        """End a subscription and send its batched acks.

        The server releases the unhandled messages of the subscription. A release costs no failure.
        """
        name = subscription if isinstance(subscription, str) else subscription.sub_id
        removed = self._subscriptions.pop(name, None)
        if removed is None:
            raise CommandFailed(f"there is no subscription {name!r}")
        removed.end()
        await removed.join(self._timeout)
        try:
            await self._acks.flush(lambda key: key[1] == name)
        finally:
            self._acks.caps.pop((removed.topic, name), None)
            self.dropped_acks += self._acks.drop(lambda key: key[1] == name)
            await self._require_connection().command(Header(c="unsubscribe", sub_id=name), self._timeout)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
