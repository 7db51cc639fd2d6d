"""`publish`: pushes to queues and sends to listeners of plain topics."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, NamedTuple

from ackwise.core import validation
from ackwise.core.commands import Push
from ackwise.core.errors import AckwiseError, BadInput, Overloaded
from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.protocols.amps.subscription import EXPIRES_AT
from ackwise.wire.amps import FAILURE, SUCCESS, Header, text

if TYPE_CHECKING:
    from ackwise.protocols.amps.session import AmpsSession

log = logging.getLogger("ackwise.amps")

DELTA = "delta_publish"
COMMANDS = ("p", DELTA)
PATIENCE = 30.0
"""Seconds that a publish retries while the broker is overloaded. Clients that want no answer cannot retry."""


class PublishedMessage(NamedTuple):
    """A published message and the command that it came with."""

    header: Header
    body: bytes
    weight: int
    expires_at: int | None
    context: dict[str, str]

    @property
    def is_plain(self) -> bool:
        """Whether the message has only a body."""
        return self.expires_at is None and not self.context

    @property
    def message(self) -> NewMessage:
        headers = self.context if self.expires_at is None else {**self.context, EXPIRES_AT: str(self.expires_at)}
        return NewMessage(self.body, headers=headers or None)


class AmpsPublisher:
    """Publishes the messages of one client in their order."""

    def __init__(self, session: AmpsSession) -> None:
        self._session = session
        self._gathered: dict[str, list[PublishedMessage]] = {}
        self._next: dict[str, list[PublishedMessage]] = {}
        self._last: dict[str, asyncio.Task[None]] = {}

    async def add(self, header: Header, body: bytes, weight: int) -> None:
        """Gathers a message for its queue, or sends it to the listeners of its topic."""
        try:
            if header.command == DELTA:
                raise BadInput(f"{DELTA} is not supported: queues and topics have no state to merge with; use publish")
            topic = validation.name(header.subject, "topic")
            queue = self._session.service.queue_of(topic)
            if queue is None:
                await self._session.service.topics.publish(topic, body, header.trace_context)
                self._confirm(header)
                self._session.subtract_load(weight)
                return
            validation.name(queue, "queue")
            message = PublishedMessage(header, body, weight, self._expires_at(header), header.trace_context)
            self._gathered.setdefault(queue, []).append(message)
        except AckwiseError as problem:
            self._refuse(header, problem)
            self._session.subtract_load(weight)

    def _expires_at(self, header: Header) -> int | None:
        expiration = text(header.e)
        if not expiration:
            return None
        try:
            seconds = float(expiration)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= validation.MAX_DELAY_SECONDS:
            raise BadInput(f"e must be a number of seconds, not {expiration[:40]!r}")
        return self._session.service.broker.wall() + round(seconds * validation.MICROS) if seconds else None

    def send(self) -> None:
        """Pushes the gathered messages, with one running push per queue to keep their order.

        Messages that arrive during a push go together into the next one.
        """
        gathered, self._gathered = self._gathered, {}
        for queue, messages in gathered.items():
            if queue in self._next:
                self._next[queue] += messages
            else:
                self._next[queue] = messages
                self._last[queue] = self._session.start_work(self._push(queue, self._last.get(queue)))

    async def _push(self, queue: str, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        batch = self._next.pop(queue)
        try:
            problem = await self._try_push(queue, batch)
            if len(batch) == 1 or not isinstance(problem, BadInput):
                self._answer(batch, problem)
                return
            # Nothing was stored. One invalid message may be the cause, so each is pushed by itself.
            for message in batch:
                self._answer([message], await self._try_push(queue, [message]))
        finally:
            self._session.subtract_load(sum(message.weight for message in batch))
            if queue not in self._next:
                self._last.pop(queue, None)

    async def _try_push(self, queue: str, batch: list[PublishedMessage]) -> AckwiseError | None:
        """Pushes the batch and returns the error, if any. Retries while the broker is overloaded."""
        if all(published.is_plain for published in batch):
            messages: PlainBatch | list[NewMessage] = PlainBatch([published.body for published in batch])
        else:
            messages = [published.message for published in batch]
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        while True:
            try:
                await self._session.service.broker.send(Push(queue=queue, messages=messages))
                return None
            except Overloaded as problem:
                if loop.time() > end:
                    return problem
                await asyncio.sleep(0.05)
            except AckwiseError as problem:
                return problem

    def _answer(self, batch: list[PublishedMessage], problem: AckwiseError | None) -> None:
        for published in batch:
            if problem is None:
                self._confirm(published.header)
            else:
                self._refuse(published.header, problem)

    def _confirm(self, header: Header) -> None:
        """Answers success: the requested acks, and `persisted` for a message of a client's publish store."""
        for kind in _kinds(header):
            self._session.send(Header(c="ack", cid=header.cid, a=kind, s=header.s, status=SUCCESS))

    def _refuse(self, header: Header, problem: AckwiseError) -> None:
        """Answers with an error. Logs it if the client cannot tell the answer from others: it has no name for it."""
        kinds = _kinds(header)
        if header.command == DELTA and not kinds:
            kinds = ["processed"]
        for kind in kinds:
            reason = problem.message
            self._session.send(Header(c="ack", cid=header.cid, a=kind, s=header.s, status=FAILURE, reason=reason))
        if not kinds:
            log.warning("a message published to %.255s is lost: %s", header.subject, problem)


def _kinds(header: Header) -> list[str]:
    """Kinds of acks to answer a publish with. A sequence number asks for `persisted`: a publish store waits for it."""
    asked = header.acknowledgements if header.cid is not None else []
    return asked if header.s is None or "persisted" in asked else [*asked, "persisted"]
