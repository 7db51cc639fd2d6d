"""Delivery from Ackwise."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from ackwise.client import settlements
from ackwise.client.aio import AsyncDelivery
from ackwise.core.answers import Settled
from ackwise.core.commands import Settlement
from ackwise.core.errors import LeaseLost
from ackwise.core.settlement import Outcome, Verdict
from ackwise.core.validation import MICROS, Seconds
from ackwise.subscriber.transport_delivery import Ask, Undecodable

if TYPE_CHECKING:
    from ackwise.subscriber.feeds.broker_feed import BrokerFeed

log = logging.getLogger("ackwise.subscriber")


class BrokerDelivery:
    """A delivery from Ackwise, as the subscriber's message needs it."""

    __slots__ = ("_feed", "attempted", "client_delivery", "held")

    def __init__(self, client_delivery: AsyncDelivery, feed: BrokerFeed) -> None:
        self.client_delivery, self._feed = client_delivery, feed
        self.held = client_delivery.verdict is None
        """Whether this app holds the message: it is not settled and its lease is not lost."""
        self.attempted: frozenset[Outcome] = frozenset()
        """Outcomes that were sent without an answer: the server may have recorded them."""

    @property
    def id(self) -> str:
        return self.client_delivery.message_id

    @property
    def span_key(self) -> str | None:
        return self.client_delivery.id

    @property
    def queue(self) -> str:
        return self.client_delivery.queue

    @property
    def body(self) -> bytes:
        return self.client_delivery.payload

    @property
    def headers(self) -> dict[str, str]:
        return self.client_delivery.headers

    @property
    def attempt(self) -> int:
        return self.client_delivery.attempt

    @property
    def enqueued_at(self) -> datetime:
        return self.client_delivery.created_at

    @property
    def deadline(self) -> datetime | None:
        return self.client_delivery.deadline if self.settleable else None

    @property
    def settleable(self) -> bool:
        return bool(self.client_delivery.lease_id)

    async def settle(self, ask: Ask) -> bool:
        transport = self._feed.connection.transport
        settlement, before, repeats = settlement_of(self, ask), self.attempted, transport.repeats
        self.attempted = before | {settlement.outcome}
        # One by one: the transport sends concurrent acks together.
        (answer,) = await self._feed.connection.settle([settlement])
        self._feed.settled(self)
        done = is_done(answer, settlement.outcome, self.attempted if transport.repeats > repeats else before)
        if done and settlement.outcome in (Outcome.RETRY, Outcome.REJECT):
            log_next_attempt(self, answer)
        if not done:
            log.info("%s of %s: %s came too late (%s)", self.id, self.queue, _name_of(ask), answer.verdict)
        return done

    def settle_soon(self, ask: Ask) -> None:
        self._feed.settle_soon(self, ask)

    async def extend(self, duration: Seconds | None) -> bool:
        try:
            await self.client_delivery.extend(duration)
        except LeaseLost:
            return False
        return True

    def stop_keeping(self) -> None:
        self._feed.held.leave(self, self.client_delivery.lease)


def settlement_of(delivery: BrokerDelivery, ask: Ask) -> Settlement:
    selector = delivery.client_delivery.selector
    if isinstance(ask, Undecodable):
        return msgspec.structs.replace(settlements.reject(selector, ask.__cause__ or ask), undecodable=True)
    return settlements.settlement_for(selector, ask)


def is_done(answer: Settled, outcome: Outcome, attempted: frozenset[Outcome]) -> bool:
    """Whether this app recorded the outcome.

    Only this app settles its delivery. After a lost answer, `already` therefore means that an earlier try succeeded,
    if all earlier tries had the same outcome. The answer to an ack also tells whether the message is acked.
    """
    if answer.verdict is not Verdict.ALREADY:
        return answer.verdict.settled
    if outcome is Outcome.ACK:
        return outcome in attempted and not answer.unacked
    return attempted == {outcome}


def log_next_attempt(delivery: BrokerDelivery, answer: Settled) -> None:
    """Log what follows a failure: the next attempt, or the dead letter."""
    if answer.verdict is Verdict.DEAD:
        reason = "dropped, because the queue keeps no dead letters" if answer.reason is None else "dead letter"
        log.warning("%s of %s: attempt %d was the last, %s", delivery.id, delivery.queue, delivery.attempt, reason)
    elif answer.retry_in is not None:
        limit = "" if answer.last_failure is None else f" of {answer.last_failure}"
        wait = answer.retry_in / MICROS
        log.warning("%s of %s: attempt %d%s, next in %.3g s", delivery.id, delivery.queue, answer.failures, limit, wait)


def _name_of(ask: Ask) -> str:
    return ask.value if isinstance(ask, Outcome) else type(ask).__name__
