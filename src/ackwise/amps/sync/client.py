# Generated from ../aio/client.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""The client: connect, log on, publish, subscribe, ack."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from ackwise.amps.errors import CommandFailed, Disconnected
from ackwise.amps.message import body_of
from ackwise.amps.sync.connecting import Connecting
from ackwise.amps.sync.subscription import Handler, OnError, Subscription
from ackwise.core.amps.frames import packed
from ackwise.core.amps.headers import Header
from ackwise.core.errors import AckwiseError, BadInput

TIMEOUT = 10.0


class Client(Connecting):
    """A connection to one of several servers, made again when it breaks.

    any number of threads may share it.
    `on_ack_error(problem)` hears of acks that could not be sent and that nobody waits for; they are tried again. It
    also hears of a subscription that the server does not take again after a reconnect; that one has ended.
    `on_disconnect(problem, dropped)` hears that the connection was lost, and how many acks with it.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        on_ack_error: Callable[[AckwiseError], object] | None = None,
        on_disconnect: Callable[[str, int], object] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__(name, timeout, on_ack_error, on_disconnect)
        self._last_sub = 0

    def publish(self, topic: str, data: object, *, expiration: float | None = None, confirm: bool = True) -> None:
        """Publish bytes, text, or anything as JSON; when this returns it is stored, unless `confirm` is turned off."""
        if not topic:
            raise CommandFailed("topic is required for publish")
        header = Header(c="p", t=topic, e=expiration)
        link = self._reached()
        if confirm:
            link.command(header, self._timeout, body_of(data), "persisted")
        else:
            link.send(packed(header, body_of(data)))

    def flush(self) -> None:
        """Until everything published so far is stored."""
        self._reached().command(Header(c="flush"), self._timeout, kind="completed")

    def subscribe(
        self,
        topic: str,
        handler: Handler | None = None,
        *,
        max_backlog: int | None = None,
        group: str | None = None,
        sub_id: str | None = None,
        on_error: OnError = "wait",
        options: str = "",
    ) -> Subscription:
        """Messages of a topic, to a handler or to be iterated over; `queue://name` is a queue.

        At most `max_backlog` messages are delivered ahead of their acks: twice the batch size unless given. A handler
        that raises leaves its message to the end of its lease, or with `on_error="cancel"` gives it back at once.
        """
        if not topic:
            raise CommandFailed("topic is required for subscribe")
        if on_error not in ("wait", "cancel"):
            raise BadInput(f"on_error is wait or cancel, not {on_error!r}")
        link = self._reached()
        backlog = 2 * self.ack_batch_size if max_backlog is None else max_backlog
        parts = [f"max_backlog={backlog}", *([f"group={group}"] if group else []), *([options] if options else [])]
        name = self._name(sub_id)
        made = Subscription(self, topic, name, ",".join(parts), handler, on_error)
        self._subscriptions[name] = made
        try:
            self.granted(made, link.command(made.command(), self._timeout))
        except BaseException:
            self._subscriptions.pop(name, None)
            made.end()
            # The server may have it all the same, or be about to.
            with suppress(Disconnected):
                link.send(packed(Header(c="unsubscribe", sub_id=name)))
            raise
        return made

    def _name(self, given: str | None) -> str:
        with self._guard:
            self._last_sub += 1
            name = given or str(self._last_sub)
        if name in self._subscriptions:
            raise CommandFailed(f"there is a subscription {name!r} already")
        return name

    def unsubscribe(self, subscription: Subscription | str) -> None:
        """Send the acks that wait for it, then take nothing more; what was not handled goes back unspent."""
        name = subscription if isinstance(subscription, str) else subscription.sub_id
        found = self._subscriptions.pop(name, None)
        if found is None:
            raise CommandFailed(f"there is no subscription {name!r}")
        found.end()
        found.join(self._timeout)
        try:
            self._acks.flush(lambda key: key[1] == name)
        finally:
            self._acks.caps.pop((found.topic, name), None)
            self.dropped_acks += self._acks.drop(lambda key: key[1] == name)
            self._reached().command(Header(c="unsubscribe", sub_id=name), self._timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
