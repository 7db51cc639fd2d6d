"""One delivery of JetStream."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from nats.aio.msg import Msg

from ackwise.core.limits import Seconds, lease_micros
from ackwise.core.settlement import Outcome
from ackwise.subscriber.feeds.jetstream.answers import IN_PROGRESS, answer
from ackwise.subscriber.handover import Ask


class Desk(Protocol):
    """Where a delivery is answered."""

    def wait_of(self, attempt: int) -> float | None:
        """How long JetStream waits for the settlement of such an attempt; None: it waits for none."""
        ...

    async def send(self, reply: str, answer: bytes) -> None: ...

    def send_soon(self, handover: NATSHandover, answer: bytes) -> None: ...

    def over(self, handover: NATSHandover) -> None: ...

    def leave(self, handover: NATSHandover) -> None: ...


class NATSHandover:
    """A message of JetStream, as the subscriber's message wants it."""

    __slots__ = ("_desk", "_got", "_msg", "_seen", "lost", "until")

    def __init__(self, msg: Msg, desk: Desk) -> None:
        self._msg, self._desk = msg, desk
        self.lost = False
        """JetStream has stopped waiting, as far as this side knows."""
        self._seen = msg.metadata
        self._hold()

    def _hold(self) -> None:
        self._got = datetime.now(UTC)
        wait = self._desk.wait_of(self.attempt)
        self.until = math.inf if wait is None else time.monotonic() + wait
        """When JetStream stops waiting, as far as this side knows; never, where it waits for nothing."""

    @property
    def id(self) -> str:
        return f"{self._seen.stream}.{self.sequence}"

    @property
    def sequence(self) -> int:
        """Which of its stream it is."""
        return self._seen.sequence.stream

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
        return self._seen.num_delivered

    @property
    def enqueued_at(self) -> datetime:
        return self._seen.timestamp

    @property
    def deadline(self) -> datetime | None:
        """As far as this side knows."""
        wait = self._desk.wait_of(self.attempt)
        return None if wait is None else self._got + timedelta(seconds=wait)

    @property
    def awaited(self) -> bool:
        """Whether JetStream waits for its settlement."""
        return self.until < math.inf

    @property
    def settleable(self) -> bool:
        """JetStream refuses nothing, and tells nobody."""
        return True

    @property
    def reply(self) -> str:
        return self._msg.reply

    async def settle(self, ask: Ask) -> bool:
        """Not through nats-py's own, which raises at a repeat: the message above it never repeats."""
        told = answer(ask)
        try:
            await self._desk.send(self.reply, told)
        except BaseException:
            self.let_go()
            raise
        self._desk.over(self)
        return True

    def settle_soon(self, ask: Ask) -> None:
        if self.lost and ask is Outcome.RELEASE:
            # That would be a nak, also for whoever has it by now.
            return
        self._desk.send_soon(self, answer(ask))

    async def extend(self, duration: Seconds | None) -> bool:
        """JetStream extends by the consumer's own ack wait, whatever is asked for."""
        if duration is not None:
            lease_micros(duration)
        await self.in_progress()
        return True

    async def in_progress(self) -> None:
        await self._desk.send(self.reply, IN_PROGRESS)
        self._hold()

    def let_go(self) -> None:
        self._desk.leave(self)
