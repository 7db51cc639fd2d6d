"""Subscriptions to queues and topics, and the leases that they hold."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ackwise.broker.deliveries import segment_slices
from ackwise.core.answers import Handed
from ackwise.core.commands import ByRange
from ackwise.core.filters import ContentFilter, Truth
from ackwise.core.messages import Extras
from ackwise.protocols.amps.dispatcher import Dispatcher
from ackwise.protocols.amps.topics import topic_pattern
from ackwise.wire import amps_bookmarks, trace_context
from ackwise.wire.amps import pack, quoted

if TYPE_CHECKING:
    from ackwise.protocols.amps.session import AmpsSession

log = logging.getLogger("ackwise.amps")

EXPIRES_AT = "ackwise-amps-expires-at"
"""Header with a published message's expiration, in microseconds since 1970. The prefix avoids users' header names."""
_LONGEST_INSTANT = 18
_extras = msgspec.json.Decoder(Extras).decode


class TopicListener:
    """Subscription to a plain topic or to all topics that match a regular expression.

    Gets messages that are published while it lasts and that its filter takes.
    """

    def __init__(
        self,
        session: AmpsSession,
        topic: str,
        sub_id: str,
        content_filter: ContentFilter | None,
        *,
        traced: bool = False,
    ) -> None:
        self.session, self.topic, self.sub_id, self.content_filter = session, topic, sub_id, content_filter
        self.traced = traced
        self.pattern = topic_pattern(topic)
        """None for an exact topic."""
        self.ended = False
        self._warned = False
        self._header = b'{"c":"p",%b}' % header_fields(topic, sub_id)

    def begin(self) -> None:
        self.session.service.topics.join(self)

    def deliver(self, topic: str, body: bytes, matches: Truth, context: Mapping[str, str]) -> None:
        """Sends a message that the filter takes. None: the filter was too costly for the message."""
        if matches and not self.ended:
            header = self._header if topic == self.topic else b'{"c":"p",%b}' % header_fields(topic, self.sub_id)
            if self.traced and context:
                header = header[:-1] + trace_fields(context, 1) + b"}"
            self.session.connection.write_published(pack(header, body))
        elif matches is None and not self._warned:
            self._warned = True
            log.warning(
                "topic %.255s: a message of %d bytes has too many values for a filter; its subscriber does not get it",
                topic,
                len(body),
            )

    async def end(self) -> None:
        self.ended = True
        self.session.service.topics.leave(self)


class QueueSubscription:
    """Subscription to a queue. Holds at most `backlog` unsettled messages."""

    def __init__(
        self,
        session: AmpsSession,
        topic: str,
        sub_id: str,
        queue: str,
        group: str,
        *,
        backlog: int,
        strict: bool,
        content_filter: ContentFilter | None = None,
        traced: bool = False,
    ) -> None:
        self.session, self.topic, self.sub_id, self.queue, self.group = session, topic, sub_id, queue, group
        self.backlog, self.strict, self.content_filter = backlog, strict, content_filter
        self.traced = traced
        self.dispatcher: Dispatcher | None = None
        """None until `begin`."""
        self.held = 0
        self.leases: dict[int, SubscriptionLease] = {}
        self.ended = False
        self._front = b'{"c":"p",%b,"bm":"' % header_fields(topic, sub_id)

    @property
    def owner(self) -> str:
        return self.session.owner

    @property
    def room(self) -> int:
        """Messages that the subscription may get now. 0 while its client does not read."""
        if self.ended or not self.session.connection.may_send:
            return 0
        return max(0, self.backlog - self.held)

    @property
    def lease_table(self) -> LeaseTable:
        return self.session.service.leases

    def deliver(self, handed: Handed) -> int | None:
        """Sends claimed messages and returns the number of bytes. None if the client has disconnected."""
        if self.ended or self.session.connection.closing:
            return None
        claimed = handed.claimed
        front = self._front + amps_bookmarks.front(claimed.lease_no, claimed.tag).encode()
        back = b'|","lp":"%b"' % amps_bookmarks.stamp(self.session.service.broker.wall_of(claimed.deadline)).encode()
        frames: list[bytes] = []
        expired: list[ByRange] = []
        for run in segment_slices(handed):
            _, _, bodies, packed = run.segment.cells(run.lo, run.hi)
            headers = _headers_of(packed)
            expired_indexes = self._expired_indexes(headers)
            first = amps_bookmarks.place(run.grant.lane, run.lo)
            for number, body in enumerate(bodies):
                if number in expired_indexes:
                    expired.append(ByRange(claimed.lease_id, run.grant.lane, run.lo + number, run.lo + number + 1))
                else:
                    more = trace_fields(headers[number], run.grant.attempt) if self.traced and headers else b""
                    frames.append(pack(b"%b%d%b%b}" % (front, first + number, back, more), body))
        data = b"".join(frames)
        self.lease_table.add(
            claimed.lease_no, SubscriptionLease(self, claimed.lease_id, claimed.count, claimed.deadline)
        )
        self.session.connection.write(data)
        if expired:
            self.session.expire(claimed.lease_no, expired)
        return len(data)

    def _expired_indexes(self, headers: Sequence[Mapping[str, str]]) -> frozenset[int]:
        """Indexes of messages whose expiration has passed."""
        limits = [(at, more[EXPIRES_AT]) for at, more in enumerate(headers) if EXPIRES_AT in more]
        if not limits:
            return frozenset()
        now = self.session.service.broker.wall()
        return frozenset(at for at, limit in limits if _instant(limit, now) <= now)

    def begin(self) -> None:
        self.dispatcher = self.session.service.dispatcher(self.queue, self.group)
        self.dispatcher.join(self)

    def free(self, count: int) -> None:
        self.held -= count
        if self.dispatcher is not None:
            self.dispatcher.wake()

    def lease_expired(self, count: int) -> None:
        """Frees messages of an expired lease and moves behind the other subscriptions, which get them first."""
        if self.dispatcher is not None:
            self.dispatcher.move_last(self)
        self.free(count)

    async def yield_turn(self) -> None:
        """Moves behind the other subscriptions before it returns a message."""
        if self.dispatcher is not None:
            await self.dispatcher.yield_turn(self)

    async def leave(self) -> list[str]:
        """Stops deliveries and returns the ids of the leases that the subscription still holds."""
        self.ended = True
        if self.dispatcher is not None:
            await self.dispatcher.leave(self)
        return self.lease_table.remove_all(self)

    async def end(self) -> None:
        await self.session.give_back(await self.leave())


def _headers_of(packed: Sequence[bytes] | None) -> list[Mapping[str, str]]:
    """The headers of each message. Empty if no message of the run has any."""
    return [] if packed is None else [_extras(extra).headers if extra else {} for extra in packed]


def trace_fields(headers: Mapping[str, str], attempt: int) -> bytes:
    """Fields of a frame's header with the trace context of a message. Empty without a valid context."""
    context = trace_context.context_of(headers.get(trace_context.PARENT), headers.get(trace_context.STATE))
    if not context:
        return b""
    fields = b"".join(b',"%b":%b' % (name.encode(), quoted(value)) for name, value in context.items())
    return fields if attempt == 1 else b'%b,"attempt":%d' % (fields, attempt)


def _instant(limit: str, now: int) -> int:
    """Expiration time. An invalid value never expires."""
    return int(limit) if limit.isdecimal() and len(limit) <= _LONGEST_INSTANT else now + 1


def header_fields(topic: str, sub_id: str) -> bytes:
    """Topic and subscription id as JSON fields of a header."""
    name = quoted(sub_id)
    return b'"t":%b,"sids":%b,"sub_id":%b' % (quoted(topic), name, name)


class SubscriptionLease:
    """A lease of a subscription: its unsettled messages and its deadline."""

    __slots__ = ("deadline", "lease_id", "left", "subscription")

    def __init__(self, subscription: QueueSubscription, lease_id: str, count: int, deadline: int) -> None:
        self.subscription, self.lease_id, self.left, self.deadline = subscription, lease_id, count, deadline


class LeaseTable:
    """Leases of all subscriptions by lease number. Every connection may settle messages of every lease."""

    def __init__(self) -> None:
        self._leases: dict[int, SubscriptionLease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, lease: int) -> SubscriptionLease | None:
        return self._leases.get(lease)

    def add(self, lease: int, held: SubscriptionLease) -> None:
        self._leases[lease] = held
        held.subscription.leases[lease] = held
        held.subscription.held += held.left

    def settled(self, lease: int, count: int, ended: bool) -> None:
        """Records that `count` messages of a lease are settled, all of them if the lease has ended."""
        held = self._leases.get(lease)
        if held is None:
            return
        count = held.left if ended else min(count, held.left)
        held.left -= count
        if not held.left:
            self._drop(lease)
        held.subscription.free(count)

    def remove_all(self, subscription: QueueSubscription) -> list[str]:
        """Removes all leases of a subscription and returns their ids."""
        leases = [held.lease_id for held in subscription.leases.values()]
        for lease in list(subscription.leases):
            self._drop(lease)
        subscription.held = 0
        return leases

    def expire(self, now: int) -> None:
        """Removes leases past their deadline."""
        for lease, held in list(self._leases.items()):
            if held.deadline <= now:
                self._drop(lease)
                held.subscription.lease_expired(held.left)

    def _drop(self, lease: int) -> None:
        held = self._leases.pop(lease, None)
        if held is not None:
            held.subscription.leases.pop(lease, None)
