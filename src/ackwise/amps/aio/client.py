"""The client: connect, log on, publish, subscribe, ack."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

from ackwise.amps.addresses import Address, addresses
from ackwise.amps.aio.link import AsyncLink
from ackwise.amps.aio.subscription import AsyncSubscription, Handler, OnError
from ackwise.amps.errors import CommandFailed, Disconnected
from ackwise.amps.message import Message, body_of
from ackwise.amps.settings import AckSettings
from ackwise.client.aio.batcher import AsyncBatcher
from ackwise.client.beside.aio import AsyncSignal, AsyncWorker, call
from ackwise.core.amps.frames import packed
from ackwise.core.amps.headers import Header, text
from ackwise.core.errors import AckwiseError, BadInput

log = logging.getLogger("ackwise.amps")

TIMEOUT = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
Key = tuple[str, str]
"""Topic and subscription: acks are gathered under it."""


class AsyncClient(AckSettings):
    """A connection to one of several servers, made again when it breaks.

    Any number of tasks of one event loop may share it.
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
        self._link: AsyncLink | None = None
        self._guard = threading.Lock()
        self._subscriptions: dict[str, AsyncSubscription] = {}
        self._last_sub = 0
        self._closed = False
        self._reconnecting = False
        self._connected = AsyncSignal()
        self._ending = AsyncSignal()
        self._acks: AsyncBatcher[Key, str, int] = AsyncBatcher(self._send_acks)
        self._ring = AsyncSignal()
        self._acker: AsyncWorker | None = None

    # connecting

    async def connect(self, uris: str | Iterable[str]) -> AsyncClient:
        """Reach the first of these servers that answers. `logon` comes next."""
        if self._closed or self._link is not None:
            raise CommandFailed("this client is closed" if self._closed else "this client is connected already")
        self._addresses = addresses(uris)
        problem: AckwiseError | None = None
        for at, address in enumerate(self._addresses):
            try:
                self._link = await AsyncLink.open(address, self._arrived, self._lost)
                self._at = at
                return self
            except Disconnected as refused:
                problem = refused
        assert problem is not None
        raise problem

    async def logon(self, user: str = "", password: str = "") -> AsyncClient:
        """Say who this is; a user and password may also be in the uri."""
        self._user = user, password
        link = self._reached()
        try:
            await self._enter(link)
        except AckwiseError:
            await self.close()
            raise
        self._connected.set()
        if self._acker is None:
            self._acker = AsyncWorker(self._send_due, f"amps acks of {self.name}")
        return self

    async def _enter(self, link: AsyncLink) -> None:
        user, password = self._user
        header = Header(
            c="logon",
            client_name=self.name,
            version="ackwise",
            mt="json",
            user_id=user or link.address.user or None,
            pw=password or link.address.password or None,
        )
        await link.command(header, self._timeout)

    def _reached(self) -> AsyncLink:
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

    async def wait_connected(self, timeout: float) -> bool:
        """Whether it is connected, or is again in time."""
        return await self._connected.wait(timeout)

    # the connection is lost

    async def _lost(self, link: AsyncLink, problem: str) -> None:
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
            await self._tell(self.on_disconnect, problem, dropped)
        if not again:
            await self._reconnect()

    async def _reconnect(self) -> None:
        """The next server, and the next, until one takes us; longer pauses each time."""
        pause = FIRST_PAUSE
        while not self._closed:
            self._at = (self._at + 1) % len(self._addresses)
            if await self._again(self._addresses[self._at]):
                return
            await self._ending.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _again(self, address: Address) -> bool:
        """Log on and subscribe again, under the same ids."""
        link: AsyncLink | None = None
        try:
            link = await AsyncLink.open(address, self._arrived, self._lost)
            await self._enter(link)
            with self._guard:
                self._link = link
            for subscription in list(self._subscriptions.values()):
                await link.command(subscription.command(), self._timeout)
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
                await link.close()
            return False
        return True

    # publishing and subscribing

    async def publish(self, topic: str, data: object, *, expiration: float | None = None, confirm: bool = True) -> None:
        """Publish bytes, text, or anything as JSON; when this returns it is stored, unless `confirm` is turned off."""
        if not topic:
            raise CommandFailed("topic is required for publish")
        header = Header(c="p", t=topic, e=expiration)
        link = self._reached()
        if confirm:
            await link.command(header, self._timeout, body_of(data), "persisted")
        else:
            await link.send(packed(header, body_of(data)))

    async def flush(self) -> None:
        """Until everything published so far is stored."""
        await self._reached().command(Header(c="flush"), self._timeout, kind="completed")

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
    ) -> AsyncSubscription:
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
        made = AsyncSubscription(self, topic, name, ",".join(parts), handler, on_error)
        self._subscriptions[name] = made
        try:
            await link.command(made.command(), self._timeout)
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

    async def unsubscribe(self, subscription: AsyncSubscription | str) -> None:
        """Send the acks that wait for it, then take nothing more; what was not handled goes back unspent."""
        name = subscription if isinstance(subscription, str) else subscription.sub_id
        found = self._subscriptions.pop(name, None)
        if found is None:
            raise CommandFailed(f"there is no subscription {name!r}")
        found.end()
        await found.join(self._timeout)
        await self._acks.flush(lambda key: key[1] == name)
        await self._reached().command(Header(c="unsubscribe", sub_id=name), self._timeout)

    def _arrived(self, message: Message) -> None:
        """What nobody subscribed to is nobody's, and is never acked."""
        found = self._subscriptions.get(message.sub_id)
        if found is not None:
            found.take(message)

    # acks

    async def ack(self, topic: str, bookmark: str, sub_id: str | None = None) -> int:
        """Ack one delivery, or several with commas between their bookmarks, now; how many were still held."""
        return await self._settle(topic, bookmark, sub_id, None)

    async def ack_message(self, message: Message) -> int:
        return await self._settle(message.topic, message.bookmark, message.sub_id, None)

    async def cancel(self, what: Message | str, bookmark: str = "", sub_id: str | None = None) -> int:
        """Give a delivery back to its queue, as a failure: a message, or its topic and bookmark."""
        return await self._settle(*_named(what, bookmark, sub_id), "cancel")

    async def expire(self, what: Message | str, bookmark: str = "", sub_id: str | None = None) -> int:
        """Make a delivery a dead letter: a message, or its topic and bookmark."""
        return await self._settle(*_named(what, bookmark, sub_id), "expire")

    async def flush_acks(self) -> None:
        """Send the acks that were gathered; returns when the server has them all."""
        await self._acks.flush()

    @property
    def pending_acks(self) -> int:
        """How many were gathered and not sent."""
        return len(self._acks)

    async def _settle(self, topic: str, bookmark: str, sub_id: str | None, option: str | None) -> int:
        if not topic:
            raise CommandFailed("topic is required for ack")
        if not bookmark:
            raise CommandFailed("bookmark is required for ack")
        link = self._reached()
        self.ack_frames += 1
        answer = await link.command(_ack(topic, bookmark, sub_id, option), self._timeout)
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

    async def failed(self, message: Message) -> None:
        """A handler failed, and its message goes back at once."""
        if message.wants_ack and not message.settled and message.link is self._link:
            try:
                await self.cancel(message)
            except AckwiseError as refused:
                await self._complain(refused)

    async def _send_acks(self, batches: Sequence[tuple[Key, Sequence[str]]]) -> list[Sequence[int] | AckwiseError]:
        """One frame for each key."""
        link = self._link
        if link is None:
            return [Disconnected() for _ in batches]
        headers = [_ack(topic, ",".join(bookmarks), sub_id, None) for (topic, sub_id), bookmarks in batches]
        self.ack_frames += len(headers)
        answers = await link.commands(headers, self._timeout)
        return [
            answer if isinstance(answer, AckwiseError) else [1] * len(items)
            for answer, (_, items) in zip(answers, batches, strict=True)
        ]

    def _changed(self) -> None:
        self._acks.size = self.ack_batch_size
        self._acks.timeout = self.ack_timeout or None
        self._ring.set()

    async def _send_due(self) -> None:
        """Sends batches that are full or old enough, until the end."""
        while not self._closed:
            await self._ring.wait(self._acks.pause())
            self._ring.clear()
            for problem in await self._acks.flush_due():
                await self._complain(problem)

    async def _complain(self, problem: AckwiseError) -> None:
        log.warning("acks could not be sent: %s", problem)
        if self.on_ack_error is not None:
            await self._tell(self.on_ack_error, problem)

    async def _tell(self, callback: Callable[..., object], *what: object) -> None:
        try:
            await call(callback, *what)
        except Exception:
            log.exception("a callback failed")

    # the end

    async def close(self) -> None:
        """Let handlers finish what they have, send their acks, say good-bye: what was not handled goes back unspent."""
        if self._closed:
            return
        for subscription in list(self._subscriptions.values()):
            subscription.end()
            await subscription.join(self._timeout)
        try:
            link = self._link
            if link is not None and self._acker is not None:
                await self._acks.flush()
                self._closed = True
                await link.command(Header(c="disconnect"), self._timeout)
        except Disconnected:
            log.warning("the connection was lost before it was closed")
        finally:
            self._closed = True
            self._ending.set()
            self._ring.set()
            link, self._link = self._link, None
            if link is not None:
                await link.close()
                await link.reader.join(self._timeout)
            if self._acker is not None:
                await self._acker.join(self._timeout)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _ack(topic: str, bookmarks: str, sub_id: str | None, option: str | None) -> Header:
    return Header(c="ack", t=topic, bm=bookmarks, sub_id=sub_id or None, opts=option)


def _named(what: Message | str, bookmark: str, sub_id: str | None) -> tuple[str, str, str | None]:
    return (what.topic, what.bookmark, what.sub_id) if isinstance(what, Message) else (what, bookmark, sub_id)


def _count(answer: Header) -> int:
    given = text(answer.records_deleted)
    return int(given) if given.isdecimal() else 0
