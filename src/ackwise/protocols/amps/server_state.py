"""AMPS service: queues, topics, leases and dispatchers that all AMPS connections share."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import ids
from ackwise.core.commands import ConfigureQueue
from ackwise.core.errors import BadInput, UnknownQueue
from ackwise.core.policy import QueuePolicy
from ackwise.core.queries import GetQueue
from ackwise.protocols.amps.connection import AmpsConnection
from ackwise.protocols.amps.dispatcher import Dispatcher
from ackwise.protocols.amps.filter_counts import FilterCounts
from ackwise.protocols.amps.subscription import LeaseTable
from ackwise.protocols.amps.topics import REGULAR, Topics
from ackwise.protocols.answer_memory import AnswerMemory
from ackwise.protocols.http_request import IncomingBytes
from ackwise.protocols.peers import Peers
from ackwise.wire.amps import LARGEST

if TYPE_CHECKING:
    from ackwise.protocols.amps.session import AmpsSession

QUEUE = "queue://"
MAX_BACKLOG = 1000
DEFAULT_BACKLOG = 100
"""Backlog of a subscription that names none."""
TICK = 0.25
"""Seconds between two checks for expired leases. The engine itself expires them at the exact time."""

Admit = Callable[[str, str, str], None]
"""Check of client name, user and password at logon. An `AckwiseError` that it raises refuses the logon."""


def admit_all(client: str, user: str, password: str) -> None:
    """Admits every client: the server has no authentication."""


class QueueOptions(NamedTuple):
    """What a queue says about its subscriptions."""

    max_backlog: int
    only_holder_acks: bool
    in_order: bool
    """Whether the queue delivers in strict order."""


class AmpsService:
    """State that all AMPS connections share, from the first connection until `drain`."""

    def __init__(
        self,
        broker: AsyncBroker,
        *,
        queues: Collection[str] = (),
        max_backlog: int = MAX_BACKLOG,
        default_backlog: int = DEFAULT_BACKLOG,
        max_frame: int = LARGEST,
        peers: Peers | None = None,
        admit: Admit = admit_all,
        memory: AnswerMemory | None = None,
        incoming: IncomingBytes | None = None,
    ) -> None:
        self.broker, self.admit = broker, admit
        self.memory = memory or AnswerMemory()
        self.memory.when_free(self.wake_dispatchers)
        self.max_frame, self.peers = max_frame, peers or Peers()
        self.leases = LeaseTable()
        self.topics = Topics(broker.in_thread)
        self.filters = FilterCounts()
        self.incoming = incoming or IncomingBytes()
        self.sessions: set[AmpsSession] = set()
        self._queues, self._max_backlog, self.default_backlog = frozenset(queues), max_backlog, default_backlog
        self._dispatchers: dict[tuple[str, str], Dispatcher] = {}
        self._numbers = itertools.count(1)
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    def protocol(self) -> AmpsConnection:
        return AmpsConnection(self)

    def owner(self) -> str:
        """Owner name of a new connection's leases."""
        return ids.connection_owner(getattr(self.broker.store, "instance", "broker"), next(self._numbers))

    def queue_of(self, topic: str) -> str | None:
        """The queue that a topic names. None for a plain topic."""
        if topic in self._queues:
            return topic
        if not topic.startswith(QUEUE):
            return None
        if topic == QUEUE:
            raise BadInput(f"topic {QUEUE} has no queue name; write {QUEUE}NAME")
        return topic.removeprefix(QUEUE)

    async def queue_options(self, topic: str, queue: str) -> QueueOptions:
        """What a queue says about its subscriptions. Creates the queue."""
        try:
            info = await self.broker.ask(GetQueue(queue=queue))
        except UnknownQueue:
            if not REGULAR.isdisjoint(queue):
                raise BadInput(
                    f"{topic[:255]!r} is a regular expression, which matches plain topics only; subscribe to each queue"
                ) from None
            info = await self.broker.send(ConfigureQueue(queue=queue))
        policy = msgspec.convert(info.policy, QueuePolicy)
        notes = dict(policy.notes)
        cap = notes.get("amps_max_backlog", self._max_backlog)
        return QueueOptions(
            cap if isinstance(cap, int) and cap > 0 else self._max_backlog,
            notes.get("amps_acks") == "strict",
            policy.effective_order == "strict",
        )

    def dispatcher(self, queue: str, group: str) -> Dispatcher:
        """Dispatcher of a queue and group. Join it at once: a dispatcher without subscriptions is dropped."""
        key = queue, group
        if key not in self._dispatchers:
            self._dispatchers[key] = Dispatcher(
                self.broker, queue, group, lambda: self._dispatchers.pop(key), self.memory
            )
        return self._dispatchers[key]

    def wake_dispatchers(self) -> None:
        """Choose the subscriptions to serve again, because the answer memory became full or free."""
        for dispatcher in self._dispatchers.values():
            dispatcher.wake()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self.leases.expire(self.broker.now())

    async def drain(self, grace: float, hurry: Callable[[], bool]) -> None:
        """Waits up to `grace` seconds for clients to settle what they hold, then disconnects them.

        The service releases the remaining messages. A release costs no failure.
        """
        end = time.monotonic() + grace
        while len(self.leases) and time.monotonic() < end and not hurry():
            await asyncio.sleep(0.02)
        self._ticking.cancel()
        await asyncio.gather(*(session.close() for session in list(self.sessions)))
