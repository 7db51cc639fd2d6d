"""The actors of the fault runs on one thread, in an order that dice decide: the same seed is the same run."""

from __future__ import annotations

import random
from collections.abc import Coroutine, Generator
from typing import Any

from ackwise.broker import Broker
from ackwise.clock import ManualClock
from ackwise.core.answers import Handed, Settled
from ackwise.core.commands import Claim, Command, Settle, Sweep
from ackwise.store.sqlite import SQLiteStore
from tests.faults.actors import cast
from tests.faults.checking import prepare
from tests.faults.power import Journal
from tests.faults.worker import Job, Voice

START = 1_700_000_000_000_000


class _Switch:
    """Awaiting it lets another actor run."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class _ActorBroker:
    """A broker whose callers take turns."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def send(self, command: Command) -> Any:
        await _Switch()
        return self._broker.send(command)

    async def claim(self, command: Claim, wait: float = 0.0) -> Handed:
        await _Switch()
        return self._broker.claim(command)

    async def settle_and_claim(
        self, settle: Settle | None, claim: Claim, wait: float = 0.0
    ) -> tuple[list[Settled], Handed]:
        await _Switch()
        return self._broker.settle_and_claim(settle, claim)

    async def pause(self, seconds: float) -> None:
        await _Switch()


class _Marks(Voice):
    """Says everything to the journal of the disk."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(-1)
        self._journal = journal

    def write(self, data: bytes) -> None:
        self._journal.mark(data)


def rehearse(store: SQLiteStore, clock: ManualClock, journal: Journal, seed: int, steps: int) -> None:
    """Runs the actors for `steps` steps, with housekeeping in between."""
    dice = random.Random(seed)
    prepare(store)
    journal.mark(b'["ready"]\n')
    broker = Broker(store, background=False)
    actor_broker, voice = _ActorBroker(broker), _Marks(journal)
    running: list[Coroutine[Any, Any, None]] = [
        actor(actor_broker, voice) for actor in cast(Job("", f"{seed}-", seed, "", 0))
    ]
    for _ in range(steps):
        dice.choice(running).send(None)
        clock.advance(dice.choice((0.0, 0.001, 0.02)))
        roll = dice.random()
        if roll < 0.03:
            broker.send(Sweep())
        elif roll < 0.08:
            store.maintain()
    for work in running:
        work.close()
