"""What all connections of one server share: queues and their subscribers, plain topics, what is in whose hands."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ackwise.broker import AsyncBroker
from ackwise.core import ids
from ackwise.core.amps.frames import LARGEST
from ackwise.core.commands import ConfigureQueue
from ackwise.core.errors import BadInput, UnknownQueue
from ackwise.core.queries import GetQueue
from ackwise.dialects.amps.connection import Connection
from ackwise.dialects.amps.handouts import Handouts
from ackwise.dialects.amps.shares import Share
from ackwise.dialects.amps.topics import Topics
from ackwise.dialects.handover import AnswerMemory
from ackwise.dialects.http import Intake
from ackwise.dialects.peers import Peers

if TYPE_CHECKING:
    from ackwise.dialects.amps.session import Session

QUEUE = "queue://"
MAX_BACKLOG = 1000
TICK = 0.25
"""How often subscribers are relieved of what they held for too long; the engine knows the exact instant."""

Admit = Callable[[str, str, str], None]
"""Called with client name, user and password at a logon; an `AckwiseError` it raises is the refusal."""


def anybody(client: str, user: str, password: str) -> None:
    """A server without authentication takes whoever can reach it."""


class AmpsFace:
    """Serves the connections that `protocol` makes, until it is drained."""

    def __init__(
        self,
        broker: AsyncBroker,
        *,
        queues: Collection[str] = (),
        max_backlog: int = MAX_BACKLOG,
        max_frame: int = LARGEST,
        peers: Peers | None = None,
        admit: Admit = anybody,
        memory: AnswerMemory | None = None,
    ) -> None:
        self.broker, self.admit = broker, admit
        self.memory = memory or AnswerMemory()
        self.memory.when_free(self._look)
        self.max_frame, self.peers = max_frame, peers or Peers()
        self.handouts = Handouts()
        self.topics = Topics()
        self.intake = Intake()
        self.sessions: set[Session] = set()
        self._queues, self._max_backlog = frozenset(queues), max_backlog
        self._shares: dict[tuple[str, str], Share] = {}
        self._numbers = itertools.count(1)
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    def protocol(self) -> Connection:
        return Connection(self)

    def owner(self) -> str:
        """What a new connection is called where leases are kept."""
        return ids.connection_owner(getattr(self.broker.store, "instance", "broker"), next(self._numbers))

    def queue_of(self, topic: str) -> str | None:
        """The queue that a topic names; None for a plain topic."""
        if topic in self._queues:
            return topic
        if not topic.startswith(QUEUE):
            return None
        if topic == QUEUE:
            raise BadInput(f"{QUEUE} is followed by a queue's name")
        return topic.removeprefix(QUEUE)

    async def terms(self, queue: str) -> tuple[int, bool]:
        """How much a subscriber of a queue may hold, and whether only the holder may ack; makes the queue."""
        try:
            info = await self.broker.ask(GetQueue(queue=queue))
        except UnknownQueue:
            info = await self.broker.send(ConfigureQueue(queue=queue))
        notes = dict(info.policy.get("notes", ()))
        cap = notes.get("amps_max_backlog", self._max_backlog)
        return (cap if isinstance(cap, int) and cap > 0 else self._max_backlog), notes.get("amps_acks") == "strict"

    def share(self, queue: str, group: str) -> Share:
        """Joined at once by whoever asks for it: one that nobody is in any more is forgotten."""
        key = queue, group
        if key not in self._shares:
            self._shares[key] = Share(self.broker, queue, group, lambda: self._shares.pop(key), self.memory)
        return self._shares[key]

    def _look(self) -> None:
        """Serve subscribers again: the answer memory is no longer full."""
        for share in self._shares.values():
            share.look()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self.handouts.run_out(self.broker.now())

    async def drain(self, grace: float, hurry: Callable[[], bool]) -> None:
        """Nothing more is handed out: let holders finish for a while, give back the rest unspent, hang up."""
        end = time.monotonic() + grace
        while len(self.handouts) and time.monotonic() < end and not hurry():
            await asyncio.sleep(0.02)
        self._ticking.cancel()
        await asyncio.gather(*(session.dismiss() for session in list(self.sessions)))
