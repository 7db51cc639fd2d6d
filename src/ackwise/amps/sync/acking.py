# Generated from ../aio/acking.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Acks: at once, or gathered by topic and subscription."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from ackwise.amps.errors import CommandFailed, Disconnected
from ackwise.amps.message import Message
from ackwise.amps.settings import AckSettings
from ackwise.amps.sync.link import Link
from ackwise.amps.sync.subscription import Subscription
from ackwise.client.beside.threads import Signal, Worker, call
from ackwise.client.sync.batcher import Batcher
from ackwise.core.amps.headers import Header, text
from ackwise.core.errors import AckwiseError

log = logging.getLogger("ackwise.amps")

MOST_IN_A_FRAME = 512 << 10
"""Characters of bookmarks: a server refuses headers that are much longer."""
Key = tuple[str, str]
"""Topic and subscription: acks are gathered under it."""


class AckVerbs(AckSettings):
    """What a client says about deliveries, over the connection it has now."""

    def __init__(self, timeout: float, on_ack_error: Callable[[AckwiseError], object] | None) -> None:
        super().__init__()
        self.on_ack_error = on_ack_error
        self.dropped_acks = 0
        """Acks that were gathered and not sent while their leases lived: those messages are delivered again."""
        self.ack_frames = 0
        """Ack frames sent so far."""
        self._timeout = timeout
        self._closed = False
        self._link: Link | None = None
        self._subscriptions: dict[str, Subscription] = {}
        self._acks: Batcher[Key, str, int] = Batcher(self._send_acks)
        self._ring = Signal()
        self._acker: Worker | None = None

    def _reached(self) -> Link:
        link = self._link
        if link is None:
            raise Disconnected("the client is closed" if self._closed else None)
        return link

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
        """One frame for each key, unless that would be too long."""
        link = self._link
        if link is None:
            return [Disconnected() for _ in batches]
        headers = [
            [_ack(topic, bookmarks, sub_id, None) for bookmarks in _lists(items)] for (topic, sub_id), items in batches
        ]
        flat = [header for some in headers for header in some]
        self.ack_frames += len(flat)
        answers = iter(link.commands(flat, self._timeout, on_success=self._acked))
        outcomes: list[Sequence[int] | AckwiseError] = []
        for some, (_, items) in zip(headers, batches, strict=True):
            problems = [answer for _ in some if isinstance(answer := next(answers), AckwiseError)]
            outcomes.append(problems[0] if problems else [1] * len(items))
        return outcomes

    def _acked(self, header: Header) -> None:
        self._acks.arrived(len(header.bookmarks))

    def granted(self, subscription: Subscription, answer: Header) -> None:
        """A batch is full when the server delivers no more without it, however large it was meant to be."""
        given = answer.options.get("max_backlog", "")
        if given.isdecimal():
            self._acks.caps[subscription.topic, subscription.sub_id] = max(1, int(given))

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
        log.warning("%s", problem)
        if self.on_ack_error is not None:
            self._tell(self.on_ack_error, problem)

    def _tell(self, callback: Callable[..., object], *what: object) -> None:
        try:
            call(callback, *what)
        except Exception:
            log.exception("a callback failed")


def _ack(topic: str, bookmarks: str, sub_id: str | None, option: str | None) -> Header:
    return Header(c="ack", t=topic, bm=bookmarks, sub_id=sub_id or None, opts=option)


def _lists(bookmarks: Sequence[str]) -> Iterator[str]:
    """With commas between them, each as long as a frame takes."""
    some: list[str] = []
    size = 0
    for one in bookmarks:
        if some and size + len(one) >= MOST_IN_A_FRAME:
            yield ",".join(some)
            some, size = [], 0
        some.append(one)
        size += len(one) + 1
    yield ",".join(some)


def _named(what: Message | str, bookmark: str, sub_id: str | None) -> tuple[str, str, str | None]:
    return (what.topic, what.bookmark, what.sub_id) if isinstance(what, Message) else (what, bookmark, sub_id)


def _count(answer: Header) -> int:
    given = text(answer.records_deleted)
    return int(given) if given.isdecimal() else 0
