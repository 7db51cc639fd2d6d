# Generated from ../aio/ack_batches.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Acks of the AMPS client: single acks, and auto-ack batches by topic and subscription."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from ackwise.amps.message import CommandFailed, Disconnected, Message
from ackwise.amps.settings import AckSettings
from ackwise.amps.spans import ClientSpans
from ackwise.amps.sync.connection import ServerConnection
from ackwise.amps.sync.subscription import Subscription
from ackwise.client.concurrency.threads import Signal, Worker, call
from ackwise.client.sync.ack_batcher import Batcher
from ackwise.core.errors import AckwiseError
from ackwise.wire.amps import Header, text

log = logging.getLogger("ackwise.amps")

LONGEST_BOOKMARKS = 512 << 10
"""Characters of bookmarks in one frame: a server refuses much longer headers."""
Key = tuple[str, str]
"""Topic and subscription of an ack batch."""


class AckVerbs(AckSettings):
    """Methods of the client that ack, cancel and expire messages."""

    def __init__(
        self, timeout: float, on_ack_error: Callable[[AckwiseError], object] | None, *, traced: bool = False
    ) -> None:
        super().__init__()
        self.spans = ClientSpans(traced)
        self.on_ack_error = on_ack_error
        self.dropped_acks = 0
        """Number of batched acks that were dropped with a lost connection. Their messages are delivered again."""
        self.ack_frames = 0
        """Number of ack frames sent."""
        self._timeout = timeout
        self._closed = False
        self._connection: ServerConnection | None = None
        self._subscriptions: dict[str, Subscription] = {}
        self._acks: Batcher[Key, str, int] = Batcher(self._send_acks)
        self._wake = Signal()
        self._acker: Worker | None = None

    def _require_connection(self) -> ServerConnection:
        connection = self._connection
        if connection is None:
            raise Disconnected("the client is closed" if self._closed else None)
        return connection

    def ack(self, topic: str, bookmark: str, sub_id: str | None = None) -> int:
        """Ack a message now. Returns how many messages were still leased. `bookmark` may be several, with commas."""
        return self._settle(topic, bookmark, sub_id, None)

    def ack_message(self, message: Message) -> int:
        """Ack a message now. See `ack`."""
        return self._settle(message.topic, message.bookmark, message.sub_id, None)

    def cancel(self, what: Message | str, bookmark: str = "", sub_id: str | None = None) -> int:
        """Return a message, or a topic and bookmark, to its queue. This counts as a failure."""
        return self._settle(*_address_of(what, bookmark, sub_id), "cancel")

    def expire(self, what: Message | str, bookmark: str = "", sub_id: str | None = None) -> int:
        """Dead-letter a message, or a topic and bookmark."""
        return self._settle(*_address_of(what, bookmark, sub_id), "expire")

    def flush_acks(self) -> None:
        """Send all batched acks and wait until the server has answered them."""
        self._acks.flush()

    @property
    def pending_acks(self) -> int:
        """Number of batched acks that are not sent yet."""
        return len(self._acks)

    def _settle(self, topic: str, bookmark: str, sub_id: str | None, option: str | None) -> int:
        if not topic:
            raise CommandFailed("topic is required for ack")
        if not bookmark:
            raise CommandFailed("bookmark is required for ack")
        connection = self._require_connection()
        self.ack_frames += 1
        with self.spans.settle(bookmark.split(","), option):
            answer = connection.command(_ack(topic, bookmark, sub_id, option), self._timeout)
        for acked in bookmark.split(","):
            self._acks.discard(acked, lambda key: key[0] == topic)
        for subscription in list(self._subscriptions.values()):
            current = subscription.current
            if current is not None and current.bookmark in bookmark.split(","):
                current.settled = True
        return _count(answer)

    def handled(self, message: Message) -> None:
        """Auto-ack a message after its handler returned or the iterator moved to the next message."""
        if not self.auto_ack or message.settled or not message.wants_ack:
            return
        message.settled = True
        if message.connection is not self._connection:
            self.dropped_acks += 1
        elif self._acks.add((message.topic, message.sub_id), message.bookmark):
            self._wake.set()

    def failed(self, message: Message) -> None:
        """Cancel a message after its handler raised (`on_error="cancel"`)."""
        if message.wants_ack and not message.settled and message.connection is self._connection:
            try:
                self.cancel(message)
            except AckwiseError as refused:
                self._report(refused)

    def _send_acks(self, batches: Sequence[tuple[Key, Sequence[str]]]) -> list[Sequence[int] | AckwiseError]:
        """Send one ack frame per key, or several if the frame would be too long."""
        connection = self._connection
        if connection is None:
            return [Disconnected() for _ in batches]
        headers = [
            [_ack(topic, bookmarks, sub_id, None) for bookmarks in _lists(items)] for (topic, sub_id), items in batches
        ]
        flat = [header for batch_headers in headers for header in batch_headers]
        self.ack_frames += len(flat)
        with self.spans.settle(_bookmarks(batches)):
            answers = iter(connection.commands(flat, self._timeout, on_success=self._acked))
        outcomes: list[Sequence[int] | AckwiseError] = []
        for batch_headers, (_, items) in zip(headers, batches, strict=True):
            problems = [answer for _ in batch_headers if isinstance(answer := next(answers), AckwiseError)]
            outcomes.append(problems[0] if problems else [1] * len(items))
        return outcomes

    def _acked(self, header: Header) -> None:
        self._acks.arrived(len(header.bookmarks))

    def note_backlog(self, subscription: Subscription, answer: Header) -> None:
        """Bound the subscription's ack batches by the backlog that the server granted.

        The server delivers nothing more until acks for the backlog arrive, so a larger batch would never fill.
        """
        backlog = answer.options.get("max_backlog", "")
        if backlog.isdecimal():
            self._acks.caps[subscription.topic, subscription.sub_id] = max(1, int(backlog))

    def _changed(self) -> None:
        self._acks.size = self.ack_batch_size
        self._acks.timeout = self.ack_timeout or None
        self._wake.set()

    def _send_due(self) -> None:
        """Send batches that are full or old enough, until the client is closed."""
        while not self._closed:
            self._wake.wait(self._acks.pause())
            self._wake.clear()
            for problem in self._acks.flush_due():
                self._report(problem)

    def _report(self, problem: AckwiseError) -> None:
        """Log an error and pass it to `on_ack_error`."""
        log.warning("%s", problem)
        if self.on_ack_error is not None:
            self._call_back(self.on_ack_error, problem)

    def _call_back(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            call(callback, *arguments)
        except Exception:
            log.exception("a callback failed")


def _ack(topic: str, bookmarks: str, sub_id: str | None, option: str | None) -> Header:
    return Header(c="ack", t=topic, bm=bookmarks, sub_id=sub_id or None, opts=option)


def _bookmarks(batches: Sequence[tuple[Key, Sequence[str]]]) -> Iterator[str]:
    for _, items in batches:
        yield from items


def _lists(bookmarks: Sequence[str]) -> Iterator[str]:
    """Join bookmarks with commas into texts that each fit into a frame."""
    part: list[str] = []
    size = 0
    for bookmark in bookmarks:
        if part and size + len(bookmark) >= LONGEST_BOOKMARKS:
            yield ",".join(part)
            part, size = [], 0
        part.append(bookmark)
        size += len(bookmark) + 1
    yield ",".join(part)


def _address_of(what: Message | str, bookmark: str, sub_id: str | None) -> tuple[str, str, str | None]:
    """Topic, bookmark and subscription of a message, or those given."""
    return (what.topic, what.bookmark, what.sub_id) if isinstance(what, Message) else (what, bookmark, sub_id)


def _count(answer: Header) -> int:
    count = text(answer.records_deleted)
    return int(count) if count.isdecimal() else 0
