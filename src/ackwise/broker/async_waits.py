"""Waits on an event loop: parked claims, pauses, submissions of cancelled callers."""

from __future__ import annotations

import asyncio
from functools import partial

from ackwise.broker.long_polls import LongPoll, LongPolls
from ackwise.broker.steps import Park
from ackwise.broker.turn_queue import Submission


class AsyncWaits:
    """Waits of one asyncio broker. `end_pauses` ends the pauses."""

    def __init__(self, loop: asyncio.AbstractEventLoop, long_polls: LongPolls) -> None:
        self._loop, self._long_polls = loop, long_polls
        self._pauses: set[asyncio.Future[None]] = set()

    async def park(self, step: Park) -> None:
        """Park a claim until a turn, a timer or the caller ends its wait."""
        poll, stopped = step.poll, step.stopped
        done: asyncio.Future[None] = self._loop.create_future()
        poll.wake = partial(_set_done, done)
        if not self._long_polls.park(poll, step.seen):
            return
        timer = self._loop.call_later(step.seconds, self.leave, poll)

        def leave(_: object) -> None:
            self.leave(poll)

        if stopped is not None:
            stopped.add_done_callback(leave)
        try:
            await done
        finally:
            timer.cancel()
            if stopped is not None:
                stopped.remove_done_callback(leave)

    def leave(self, poll: LongPoll) -> None:
        """End the wait of a parked claim. If a turn has the claim, that turn wakes it."""
        if self._long_polls.leave(poll):
            poll.finish()

    async def pause(self, seconds: float) -> None:
        """Sleep until `end_pauses`, at most `seconds`.

        A future and a timer cost less here than a task that waits for an event: a broker pauses 20 times a second.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        self._pauses.add(done)
        timer = self._loop.call_later(seconds, _set_done, done)
        try:
            await done
        finally:
            timer.cancel()
            self._pauses.discard(done)

    def end_pauses(self) -> None:
        for pause in self._pauses:
            _set_done(pause)

    def finished(self, submission: Submission) -> asyncio.Future[None]:
        """A future that is done when the submission finishes. It replaces the submission's `wake` callback."""
        future: asyncio.Future[None] = self._loop.create_future()
        if submission.finished:
            future.set_result(None)
        else:
            submission.wake = partial(_set_done, future)
        return future


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
