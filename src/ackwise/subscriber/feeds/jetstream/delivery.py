"""Delivery from JetStream and its acks."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec
from nats.aio.msg import Msg

from ackwise.core import validation
from ackwise.core.settlement import Outcome, Reject, Retry
from ackwise.core.validation import MICROS, Seconds, lease_micros
from ackwise.subscriber.transport_delivery import Ask, Undecodable


def monotonic_micros() -> int:
    return time.monotonic_ns() // 1000


class SettlementChannel(Protocol):
    """Sends the settlements of deliveries."""

    def wait_of(self, attempt: int) -> float | None:
        """Seconds that JetStream waits for the settlement of this delivery attempt. None if it does not wait."""
        ...

    async def send(self, reply: str, answer: bytes) -> None: ...

    def send_soon(self, delivery: NATSDelivery, answer: bytes) -> None: ...

    def settled(self, delivery: NATSDelivery) -> None: ...

    def leave(self, delivery: NATSDelivery) -> None: ...


class NATSDelivery:
    """A delivery from JetStream, as the subscriber's message needs it."""

    __slots__ = ("_channel", "_expires_at", "_metadata", "_msg", "_received_at", "duration", "ended", "lost")
    in_doubt = False

    def __init__(self, msg: Msg, channel: SettlementChannel) -> None:
        self._msg, self._channel = msg, channel
        self.lost = False
        """Whether the ack wait is over, by this side's clock."""
        self._metadata = msg.metadata
        self._hold()

    def _hold(self) -> None:
        self._received_at = datetime.now(UTC)
        wait = self._channel.wait_of(self.attempt)
        self.ended = wait is None
        """Whether JetStream does not wait for a settlement."""
        self.duration = round((wait or 0.0) * MICROS)
        self._expires_at = monotonic_micros() + self.duration

    @property
    def span_key(self) -> str | None:
        return None

    @property
    def id(self) -> str:
        return f"{self._metadata.stream}.{self.sequence}"

    @property
    def sequence(self) -> int:
        """The message's sequence number in its stream."""
        return self._metadata.sequence.stream

    @property
    def queue(self) -> str:
        return self._msg.subject

    @property
    def body(self) -> bytes:
        return self._msg.data

    @property
    def headers(self) -> dict[str, str]:
        return dict(self._msg.headers or {})

    @property
    def attempt(self) -> int:
        return self._metadata.num_delivered

    @property
    def enqueued_at(self) -> datetime:
        return self._metadata.timestamp

    @property
    def deadline(self) -> datetime | None:
        """When the ack wait ends, by this side's clock."""
        wait = self._channel.wait_of(self.attempt)
        return None if wait is None else self._received_at + timedelta(seconds=wait)

    @property
    def is_ending(self) -> bool:
        return self.ended

    def remaining(self, now: int) -> int:
        """Microseconds until the ack wait is over, by this side's monotonic clock."""
        return self._expires_at - now

    @property
    def settleable(self) -> bool:
        """True: JetStream accepts every settlement and reports no refusal."""
        return True

    @property
    def reply(self) -> str:
        return self._msg.reply

    async def settle(self, ask: Ask) -> bool:
        """Send a settlement. nats-py's own ack raises on a repeat, so the feed publishes the answer itself."""
        ack = answer(ask)
        try:
            await self._channel.send(self.reply, ack)
        except BaseException:
            self.stop_keeping()
            raise
        self._channel.settled(self)
        return True

    def settle_soon(self, ask: Ask) -> None:
        if self.lost and ask is Outcome.RELEASE:
            # The release is sent as a nak, which would hit the consumer that has the message by now.
            return
        self._channel.send_soon(self, answer(ask))

    async def extend(self, duration: Seconds | None) -> bool:
        """Extend the ack wait. JetStream ignores `duration` and uses the consumer's ack wait."""
        if duration is not None:
            lease_micros(duration)
        await self.in_progress()
        return True

    async def in_progress(self) -> None:
        await self._channel.send(self.reply, IN_PROGRESS)
        self._hold()

    def stop_keeping(self) -> None:
        self._channel.leave(self)


IN_PROGRESS = b"+WPI"
LONGEST_REASON = 1000


def answer(ask: Ask) -> bytes:
    """The bytes of a settlement. Raises at once if the outcome is invalid, so that queued answers are valid."""
    match ask:
        case Outcome.ACK:
            return b"+ACK"
        case Undecodable():
            return _terminated(f"undecodable: {ask}")
        case Reject():
            return _terminated(str(ask.reason))
        case Retry() if ask.delay is not None and (micros := validation.micros(ask.delay, "delay")):
            return b"-NAK " + msgspec.json.encode({"delay": micros * 1000})
        case _:
            return b"-NAK"


def _terminated(reason: str) -> bytes:
    """A TERM answer with the reason, which JetStream repeats in its advisory."""
    text = " ".join(reason.split())[:LONGEST_REASON]
    return f"+TERM {text}".encode("utf-8", "replace")
