"""The turns of one shard on an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ackwise.broker.long_polls import LongPoll
from ackwise.broker.turn_queue import Submission, TurnQueue, commands_of, fail, finish_turn
from ackwise.core.commands import Command
from ackwise.store.port import PreparedTurn

if TYPE_CHECKING:
    from ackwise.broker.async_broker import AsyncBroker


class AsyncShard:
    """Writer queue of an `AsyncBroker`. A task runs its turns one at a time while commands wait."""

    def __init__(self, broker: AsyncBroker, number: int) -> None:
        self._broker, self._number = broker, number
        self._queue = TurnQueue()
        self._running = False

    async def submit(self, commands: Sequence[Command]) -> Submission:
        """Wait until a turn has run the commands.

        If the caller is cancelled, the commands stay in their turn, which may already run. The broker then releases
        what the turn grants.
        """
        done: asyncio.Future[None] = self._broker.loop.create_future()
        submission = Submission(commands, lambda: None if done.done() else done.set_result(None))
        self._queue.add(submission)
        if not self._running:
            self._running = True
            self._broker.start_task(self._run())
        try:
            await done
        except asyncio.CancelledError:
            self._broker.release_cancelled(submission)
            raise
        return submission

    async def _run(self) -> None:
        try:
            while len(self._queue):
                # Callers that are ready on the loop submit first, so that they share the turn.
                await asyncio.sleep(0)
                await self._turn()
        finally:
            self._running = False

    async def _turn(self) -> None:
        """Run one turn and wake its callers. Parked claims that the turn may serve ride in it."""
        broker, long_polls = self._broker, self._broker.long_polls
        taken: list[Submission] = []
        riders: list[LongPoll] = []
        prepared: PreparedTurn | None = None
        committed = False
        try:
            self._queue.take(taken)
            commands = commands_of(taken)
            if long_polls.parked:
                long_polls.ride(commands, riders)
                commands += commands_of(riders)
            if broker.store.local and not broker.store.busy():
                started = time.perf_counter()
                prepared = broker.store.prepare(commands, self._number)
                self._queue.record_duration(len(commands), started)
            else:
                prepared = await broker.prepare_in_thread(commands, self._number)
            if prepared.nothing_to_commit:
                prepared.commit()
            else:
                await broker.commit_in_thread(prepared)
            committed = True
            finish_turn(broker, taken, riders, prepared)
        except BaseException as problem:
            if not committed:
                fail((*taken, *(rider for rider in riders if not rider.parked)), problem)
                if prepared is not None:
                    prepared.abandon()
            if not isinstance(problem, Exception):
                raise


def finish_future(submission: Submission, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    """A future that is done when the submission finishes. It replaces the submission's earlier `wake` callback."""
    finished: asyncio.Future[None] = loop.create_future()
    if submission.finished:
        finished.set_result(None)
    else:
        submission.wake = lambda: None if finished.done() else finished.set_result(None)
    return finished
