# Generated from ../aio/client.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""The client: connect, log on, publish, subscribe, ack."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

from ackwise.amps.addresses import Address, addresses
from ackwise.amps.errors import CommandFailed, Disconnected
from ackwise.amps.message import Message, body_of
from ackwise.amps.settings import AckSettings
from ackwise.amps.sync.link import Link
from ackwise.amps.sync.subscription import Handler, OnError, Subscription
from ackwise.client.beside.threads import Signal, Worker, call
from ackwise.client.sync.batcher import Batcher
from ackwise.core.amps.frames import packed
from ackwise.core.amps.headers import Header, text
from ackwise.core.errors import AckwiseError, BadInput

log = logging.getLogger("ackwise.amps")

TIMEOUT = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
Key = tuple[str, str]
"""Topic and subscription: acks are gathered under it."""


class Client(AckSettings):
    """A connection to one of several servers, made again when it breaks.

    any number of threads may share it.
    `on_ack_error(problem)` hears of acks that could not be sent and that nobody waits for; they are tried again.
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
        super().__init__()
        self.name = name or f"ackwise-{os.getpid()}-{os.urandom(3).hex()}"
        self.on_ack_error, self.on_disconnect = on_ack_error, on_disconnect
        self.dropped_acks = 0
        """Acks that were gathered and not sent when a connection was lost: those messages are delivered again."""
        self.ack_frames = 0
        """Ack frames sent so far."""
        self._timeout = timeout
        self._addresses: list[Address] = []
        self._at = 0
        self._user: tuple[str, str] = "", ""
        self._link: Link | None = None
        self._guard = threading.Lock()
        self._subscriptions: dict[str, Subscription] = {}
        self._last_sub = 0
        self._closed = False
        self._reconnecting = False
        self._connected = Signal()
        self._ending = Signal()
        self._acks: Batcher[Key, str, int] = Batcher(self._send_acks)
        self._ring = Signal()
        self._acker: Worker | None = None

    # connecting

    def connect(self, uris: str | Iterable[str]) -> Client:
        """Reach the first of these servers that answers. `logon` comes next."""
        if self._closed or self._link is not None:
            raise CommandFailed("this client is closed" if self._closed else "this client is connected already")
        self._addresses = addresses(uris)
        problem: AckwiseError | None = None
        for at, address in enumerate(self._addresses):
            try:
                self._link = Link.open(address, self._arrived, self._lost)
                self._at = at
                return self
            except Disconnected as refused:
                problem = refused
        assert problem is not None
        raise problem

    def logon(self, user: str = "", password: str = "") -> Client:
        """Say who this is; a user and password may also be in the uri."""
        self._user = user, password
        link = self._reached()
        try:
            self._enter(link)
        except AckwiseError:
            self.close()
            raise
        self._connected.set()
        if self._acker is None:
            self._acker = Worker(self._send_due, f"amps acks of {self.name}")
        return self

    def _enter(self, link: Link) -> None:
        user, password = self._user
        header = Header(
            c="logon",
            client_name=self.name,
            version="ackwise",
            mt="json",
            user_id=user or link.address.user or None,
            pw=password or link.address.password or None,
        )
        link.command(header, self._timeout)

    def _reached(self) -> Link:
        link = self._link
        if link is None:
            raise Disconnected("the client is closed" if self._closed else None)
        return link

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def uri(self) -> str | None:
        """The server it is connected to."""
        link = self._link
        return None if link is None else str(link.address)

    def wait_connected(self, timeout: float) -> bool:
        """Whether it is connected, or is again in time."""
        return self._connected.wait(timeout)

    # the connection is lost

    def _lost(self, link: Link, problem: str) -> None:
        """Runs where the lost connection was read."""
        with self._guard:
            if link is not self._link:
                return
            self._link = None
            self._connected.clear()
            if self._closed or self._acker is None:
                return
            # One that is lost again while it is being entered is left to whoever enters it.
            again, self._reconnecting = self._reconnecting, True
        dropped = self._acks.clear()
        self.dropped_acks += dropped
        for subscription in list(self._subscriptions.values()):
            subscription.clear()
        log.warning("%s: %s; %d acks dropped", link.address, problem, dropped)
        if self.on_disconnect is not None:
            self._tell(self.on_disconnect, problem, dropped)
        if not again:
            self._reconnect()

    def _reconnect(self) -> None:
        """The next server, and the next, until one takes us; longer pauses each time."""
        pause = FIRST_PAUSE
        while not self._closed:
            self._at = (self._at + 1) % len(self._addresses)
            if self._again(self._addresses[self._at]):
                return
            self._ending.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _again(self, address: Address) -> bool:
        """Log on and subscribe again, under the same ids."""
        link: Link | None = None
        try:
            link = Link.open(address, self._arrived, self._lost)
            self._enter(link)
            with self._guard:
                self._link = link
            for subscription in list(self._subscriptions.values()):
                link.command(subscription.command(), self._timeout)
            with self._guard:
                # It may have been lost while nobody knew it for ours.
                if link.lost or self._closed:
                    raise Disconnected(f"the connection to {address} is lost" if link.lost else "the client is closed")
                self._reconnecting = False
                self._connected.set()
        except AckwiseError as problem:
            log.warning("%s: %s", address, problem)
            with self._guard:
                self._link = None
            if link is not None:
                link.close()
            return False
        return True

    # publishing and subscribing

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
            link.command(made.command(), self._timeout)
        except BaseException:
            self._subscriptions.pop(name, None)
            made.end()
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
        self._acks.flush(lambda key: key[1] == name)
        self._reached().command(Header(c="unsubscribe", sub_id=name), self._timeout)

    def _arrived(self, message: Message) -> None:
        """What nobody subscribed to is nobody's, and is never acked."""
        found = self._subscriptions.get(message.sub_id)
        if found is not None:
            found.take(message)

    # acks

    def ack(self, topic: str, bookmark: str, sub_id: str | None = None) -> int:
        """Ack one delivery, or several with commas between their bookmarks, now; how many were still held."""
        return self._settle(topic, bookmark, sub_id, None)

    def ack_message(self, message: Message) -> int:
        return self._settle(message.topic, message.bookmark, message.sub_id, None)

    def cancel(self, what: Message | str, bookmark: str = "", sub_id: str | None = None) -> int:
        """Give a delivery back to its queue, as a failure: a message, or its topic and bookmark."""
        return self._settle(*_named(what, bookmark, sub_id), "cancel")

    def expire(self, what: Message | str, bookmark: str = "", sub_id: str | None = None) -> int:
        """Make a delivery a dead letter: a message, or its topic and bookmark."""
        return self._settle(*_named(what, bookmark, sub_id), "expire")

    def flush_acks(self) -> None:
        """Send the acks that were gathered; returns when the server has them all."""
        self._acks.flush()

    @property
    def pending_acks(self) -> int:
        """How many were gathered and not sent."""
        return len(self._acks)

    def _settle(self, topic: str, bookmark: str, sub_id: str | None, option: str | None) -> int:
        if not topic:
            raise CommandFailed("topic is required for ack")
        if not bookmark:
            raise CommandFailed("bookmark is required for ack")
        link = self._reached()
        self.ack_frames += 1
        answer = link.command(_ack(topic, bookmark, sub_id, option), self._timeout)
        for one in bookmark.split(","):
            self._acks.discard(one, lambda key: key[0] == topic)
        for subscription in list(self._subscriptions.values()):
            current = subscription.current
            if current is not None and current.bookmark in bookmark.split(","):
                current.settled = True
        return _count(answer)

    def handled(self, message: Message) -> None:
        """A handler is done with a message, or the next one was asked for."""
        if not self.auto_ack or message.settled or not message.wants_ack:
            return
        message.settled = True
        if message.link is not self._link:
            self.dropped_acks += 1
        elif self._acks.add((message.topic, message.sub_id), message.bookmark):
            self._ring.set()

    def failed(self, message: Message) -> None:
        """A handler failed, and its message goes back at once."""
        if message.wants_ack and not message.settled and message.link is self._link:
            try:
                self.cancel(message)
            except AckwiseError as refused:
                self._complain(refused)

    def _send_acks(self, batches: Sequence[tuple[Key, Sequence[str]]]) -> list[Sequence[int] | AckwiseError]:
        """One frame for each key."""
        link = self._link
        if link is None:
            return [Disconnected() for _ in batches]
        headers = [_ack(topic, ",".join(bookmarks), sub_id, None) for (topic, sub_id), bookmarks in batches]
        self.ack_frames += len(headers)
        answers = link.commands(headers, self._timeout)
        return [
            answer if isinstance(answer, AckwiseError) else [1] * len(items)
            for answer, (_, items) in zip(answers, batches, strict=True)
        ]

    def _changed(self) -> None:
        self._acks.size = self.ack_batch_size
        self._acks.timeout = self.ack_timeout or None
        self._ring.set()

    def _send_due(self) -> None:
        """Sends batches that are full or old enough, until the end."""
        while not self._closed:
            self._ring.wait(self._acks.pause())
            self._ring.clear()
            for problem in self._acks.flush_due():
                self._complain(problem)

    def _complain(self, problem: AckwiseError) -> None:
        log.warning("acks could not be sent: %s", problem)
        if self.on_ack_error is not None:
            self._tell(self.on_ack_error, problem)

    def _tell(self, callback: Callable[..., object], *what: object) -> None:
        try:
            call(callback, *what)
        except Exception:
            log.exception("a callback failed")

    # the end

    def close(self) -> None:
        """Let handlers finish what they have, send their acks, say good-bye: what was not handled goes back unspent."""
        if self._closed:
            return
        for subscription in list(self._subscriptions.values()):
            subscription.end()
            subscription.join(self._timeout)
        try:
            link = self._link
            if link is not None and self._acker is not None:
                self._acks.flush()
                self._closed = True
                link.command(Header(c="disconnect"), self._timeout)
        except Disconnected:
            log.warning("the connection was lost before it was closed")
        finally:
            self._closed = True
            self._ending.set()
            self._ring.set()
            link, self._link = self._link, None
            if link is not None:
                link.close()
                link.reader.join(self._timeout)
            if self._acker is not None:
                self._acker.join(self._timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _ack(topic: str, bookmarks: str, sub_id: str | None, option: str | None) -> Header:
    return Header(c="ack", t=topic, bm=bookmarks, sub_id=sub_id or None, opts=option)


def _named(what: Message | str, bookmark: str, sub_id: str | None) -> tuple[str, str, str | None]:
    return (what.topic, what.bookmark, what.sub_id) if isinstance(what, Message) else (what, bookmark, sub_id)


def _count(answer: Header) -> int:
    given = text(answer.records_deleted)
    return int(given) if given.isdecimal() else 0
