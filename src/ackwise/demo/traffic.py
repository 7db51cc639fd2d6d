"""Traffic of the demo on a server's broker: slow producers and consumers, a stuck consumer, and a cleanup job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.client import AsyncConnection
from ackwise.client.aio.delivery import AsyncDelivery
from ackwise.core.commands import PurgeDead
from ackwise.core.errors import AckwiseError, Draining
from ackwise.core.queries import ListDead
from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS
from ackwise.demo.pipeline_reports import EVERY, RunningReports
from ackwise.demo.shop import STAGES, Abandoned, Dice, Group, Stage

Job = Callable[[], Coroutine[Any, Any, None]]

STUCK_QUEUE, STUCK_GROUP, STUCK_OWNER = "media/thumbnails", "resizers", "resizer-9 (stuck)"
STUCK_SECONDS = 1800.0
"""Seconds for which the stuck consumer holds its lease."""
SPEED = 0.3
"""Messages per second of a stage with the rate 1."""
WAIT = 20.0
PAUSE = 2.0
"""Seconds after an error, for example while the user has paused or deleted a queue."""
TIDY_EVERY = 60.0
KEPT_DEAD = 2 * 3600 * MICROS
"""Microseconds for which the cleanup job keeps the dead letters of this run."""
TIDY_LIMIT = 500


class Traffic:
    """Runs the jobs of the demo until `stop`. `number` is the number of the last message so far."""

    def __init__(self, broker: AsyncBroker, dice: Dice, number: int) -> None:
        self._broker, self._dice, self._number = broker, dice, number
        self._connection = AsyncConnection(broker)
        self._reports = RunningReports(dice)
        self._began = broker.wall()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self.add(self._be_stuck)  # the first, so that it gets messages before the other consumers of its group
        for stage in STAGES:
            self.add(partial(self._produce, stage))
            for group in stage.groups:
                for worker in group.workers:
                    self.add(partial(self._consume, stage, group, worker))
        self.add(self._report)
        self.add(self._tidy)

    def add(self, job: Job) -> None:
        """Run one more job, again and again, until `stop`."""
        self._tasks.append(asyncio.get_running_loop().create_task(_repeated(job)))

    def stop(self) -> None:
        """Cancel all jobs at once. Their leases end with the scratch store."""
        for task in self._tasks:
            task.cancel()

    async def _produce(self, stage: Stage) -> None:
        """Push the next message, then pause for a random time."""
        self._number += 1
        await self._connection.push_many(stage.queue, [stage.make(self._number, self._dice)])
        await asyncio.sleep(self._dice.expovariate(SPEED * stage.rate))

    async def _consume(self, stage: Stage, group: Group, worker: str) -> None:
        """Claim a few messages, work on them, and settle each of them."""
        batch = await self._connection.claim(stage.queue, group=group.name, max=3, wait=WAIT, owner=worker)
        for delivery in batch:
            await asyncio.sleep(group.seconds * self._dice.uniform(0.4, 1.6))
            outcome = self._outcome(group, delivery)
            if outcome is None:
                return  # the consumer died, and its lease runs out
            await self._connection.settle([(delivery, outcome)])

    def _outcome(self, group: Group, delivery: AsyncDelivery) -> Outcome | Exception | None:
        try:
            group.work(delivery.json(), self._dice)
        except Abandoned:
            return None
        except Exception as problem:
            return problem
        return Outcome.ACK

    async def _be_stuck(self) -> None:
        """Hold a lease and do nothing."""
        await self._connection.claim(
            STUCK_QUEUE, group=STUCK_GROUP, max=3, wait=WAIT, lease=STUCK_SECONDS, owner=STUCK_OWNER
        )
        await asyncio.sleep(STUCK_SECONDS)

    async def _report(self) -> None:
        """Report the pipeline that runs."""
        await self._broker.send(self._reports.next())
        await asyncio.sleep(EVERY)

    async def _tidy(self) -> None:
        """Delete the dead letters of this run that are old, so that the store stays small overnight."""
        await asyncio.sleep(TIDY_EVERY)
        before = self._broker.wall() - KEPT_DEAD
        if before > self._began:
            page = await self._broker.ask(ListDead(after_at=self._began, before_at=before, limit=TIDY_LIMIT))
            if page.letters:
                await self._broker.send(PurgeDead(ids=[letter.id for letter in page.letters]))


async def _repeated(job: Job) -> None:
    """Run a job again and again. Errors do not end it: the user may pause, purge or delete queues of the demo."""
    with contextlib.suppress(Draining):
        while True:
            try:
                await job()
            except Draining:
                raise
            except AckwiseError:
                await asyncio.sleep(PAUSE)
