"""Publishes: to a queue they are pushed, those that came together in one turn; to a plain topic they are told on."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, NamedTuple

from ackwise.core import limits
from ackwise.core.amps.headers import Header, text
from ackwise.core.commands import Push
from ackwise.core.errors import AckwiseError, BadInput, Overloaded
from ackwise.core.messages import NewMessage, PlainBatch
from ackwise.dialects.amps.subscription import EXPIRES_AT

if TYPE_CHECKING:
    from ackwise.dialects.amps.session import Session

log = logging.getLogger("ackwise.amps")

PATIENCE = 30.0
"""How long a publish waits where too much is waiting to be written: who asks for no answer must not lose it."""


class Published(NamedTuple):
    header: Header
    body: bytes
    weight: int
    expires_at: int | None

    @property
    def message(self) -> NewMessage:
        headers = None if self.expires_at is None else {EXPIRES_AT: str(self.expires_at)}
        return NewMessage(self.body, headers=headers)


class Publishing:
    """What one client publishes, in its order."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._gathered: dict[str, list[Published]] = {}
        self._next: dict[str, list[Published]] = {}
        self._last: dict[str, asyncio.Task[None]] = {}

    def add(self, header: Header, body: bytes, weight: int) -> None:
        try:
            topic = limits.name(header.subject, "topic")
            queue = self._session.face.queue_of(topic)
            if queue is None:
                self._session.face.topics.publish(topic, body)
                self._session.answer(header, s=header.s)
                self._session.relieve(weight)
                return
            limits.name(queue, "queue")
            published = Published(header, body, weight, self._expires(header))
            self._gathered.setdefault(queue, []).append(published)
        except AckwiseError as problem:
            self._refuse(header, problem)
            self._session.relieve(weight)

    def _expires(self, header: Header) -> int | None:
        given = text(header.e)
        if not given:
            return None
        try:
            seconds = float(given)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= limits.MAX_DELAY_SECONDS:
            raise BadInput(f"e must be a number of seconds, not {given[:40]!r}")
        return self._session.face.broker.now() + round(seconds * limits.MICROS) if seconds else None

    def send(self) -> None:
        """One push of a queue is under way at a time, so that nothing overtakes; what comes meanwhile goes together."""
        gathered, self._gathered = self._gathered, {}
        for queue, some in gathered.items():
            if queue in self._next:
                self._next[queue] += some
            else:
                self._next[queue] = some
                self._last[queue] = self._session.beside(self._push(queue, self._last.get(queue)))

    async def _push(self, queue: str, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        some = self._next.pop(queue)
        try:
            problem = await self._pushed(queue, some)
            if len(some) == 1 or not isinstance(problem, BadInput):
                self._told(some, problem)
                return
            # One of them may be the reason, and none was stored: each is tried by itself.
            for one in some:
                self._told([one], await self._pushed(queue, [one]))
        finally:
            self._session.relieve(sum(one.weight for one in some))
            if queue not in self._next:
                self._last.pop(queue, None)

    async def _pushed(self, queue: str, some: list[Published]) -> AckwiseError | None:
        plain = all(one.expires_at is None for one in some)
        messages = PlainBatch([one.body for one in some]) if plain else [one.message for one in some]
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE
        while True:
            try:
                await self._session.face.broker.send(Push(queue=queue, messages=messages))
                return None
            except Overloaded as problem:
                if loop.time() > end:
                    return problem
                await asyncio.sleep(0.05)
            except AckwiseError as problem:
                return problem

    def _told(self, some: list[Published], problem: AckwiseError | None) -> None:
        for one in some:
            if problem is None:
                self._session.answer(one.header, s=one.header.s)
            else:
                self._refuse(one.header, problem)

    def _refuse(self, header: Header, problem: AckwiseError) -> None:
        """Who asked for no answer would take one for the answer to something else."""
        if header.asked and header.cid is not None:
            self._session.refuse(header, problem)
        else:
            log.warning("a message published to %.255s is lost: %s", header.subject, problem)
