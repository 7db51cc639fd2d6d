"""The workers of one handler."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar

from ackwise.core.settlement import Outcome
from ackwise.subscriber.feeds.feed import Feed
from ackwise.subscriber.handover import Handover
from ackwise.subscriber.subscription import Subscription

log = logging.getLogger("ackwise.subscriber")

AHEAD = 0.05
"""Without a `prefetch` as much is claimed ahead as the workers will have done in so many seconds."""
MOST_AHEAD = 256
_WEIGHT = 0.05
_LOOK_AGAIN = 0.02
STUBBORN = 2.0
"""So many seconds has a handler that is cancelled to come to its end."""
_HANDLED: ContextVar[Handover | None] = ContextVar("ackwise_handled", default=None)
"""What the handler works on in which this is asked, also in tasks and threads of its own."""


class Workers:
    """So many at once, fed in the order of the queue."""

    def __init__(
        self,
        subscription: Subscription,
        feed: Feed,
        handle: Callable[[Handover, Callable[[Handover], bool]], Awaitable[None]],
        left_in_threads: Callable[[], int],
        exits: Callable[[BaseException], None],
    ) -> None:
        self._subscription, self._feed, self._handle = subscription, feed, handle
        self._left_in_threads, self._exits = left_in_threads, exits
        self._resting = 0
        """So many take nothing more before a thread ends that nobody can stop."""
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[Handover] = asyncio.Queue()
        self._running: dict[Handover, asyncio.Task[None]] = {}
        self._here: set[Handover] = set()
        """What waits and what runs."""
        self._lost: set[Handover] = set()
        self._lasts: float | None = None
        self._idle, self._complete = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._grace: asyncio.Timeout | None = None
        self._latest = math.inf
        """When the grace is over at the latest."""
        self._ending = self.over = False
        """Drained: nothing will be settled by its handlers any more."""
        self._tasks = [self._begin(f"{subscription.name}-{number}") for number in range(subscription.concurrency)]

    def _begin(self, name: str) -> asyncio.Task[None]:
        return self._loop.create_task(self._work(), name=name)

    @property
    def alive(self) -> bool:
        return not any(task.done() for task in self._tasks)

    @property
    def runs_caller(self) -> bool:
        """Whether whoever asks is a handler of ours, or part of one: it would wait for itself."""
        return _HANDLED.get() in self._running

    @property
    def room(self) -> int:
        free = self._subscription.concurrency - self._left_in_threads()
        return free + self._ahead() - len(self._here) if free > 0 else 0

    def _ahead(self) -> int:
        given = self._subscription
        if given.acked_first:
            # Whatever is claimed is acked already: only what is begun at once.
            return 0
        if given.prefetch is not None:
            return given.prefetch
        if self._lasts is None:
            return 0
        return min(MOST_AHEAD, int(given.concurrency * AHEAD / max(self._lasts, 1e-5)))

    def put(self, handover: Handover) -> None:
        self._idle.clear()
        self._here.add(handover)
        self._waiting.put_nowait(handover)
        if self._resting == self._subscription.concurrency:
            self.give_back()

    def no_more(self) -> None:
        """Nothing will be put any more."""
        self._complete.set()

    def fed_no_more(self) -> None:
        """Nobody is left who would put anything: those that wait need not."""
        self.no_more()
        at_work = self._running.values()
        for task in self._tasks:
            if task not in at_work:
                task.cancel()

    def lost(self, handover: Handover) -> None:
        if handover not in self._here:
            return
        self._lost.add(handover)
        task = self._running.get(handover)
        if task is not None:
            stopped = "works on in its thread for nothing" if self._subscription.signature.in_thread else "is cancelled"
            log.warning("%s lost the lease of %s and %s", self._subscription.name, handover.id, stopped)
            task.cancel()

    def cancels(self, handover: Handover) -> bool:
        """Whether it is we who cancelled its handler."""
        return self._ending or handover in self._lost

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        # A handler may keep its cancellation to itself: it is meant for the worker all the same.
        while not self._ending:
            if self._left_in_threads() > self._resting:
                await self._rested()
            handover = await self._waiting.get()
            if handover not in self._lost:
                await self._run(handover, task)
            self._gone(handover)
            self._feed.wake()
            if task.cancelling() and not self._ending:
                # For a lost lease; or by a task group of Python 3.11 that failed, which leaves that behind. Another
                # goes on: whoever cancelled this very task, such as a loop that is closed, is not made to wait.
                self._tasks[self._tasks.index(task)] = self._begin(task.get_name())
                return

    async def _rested(self) -> None:
        """For each handler that is left in a thread one of us waits until that ends: what it took meanwhile it would
        keep from others who could begin at once. So would all of us: then what waits goes back."""
        self._resting += 1
        if self._resting == self._subscription.concurrency:
            self.give_back()
        try:
            while self._left_in_threads() >= self._resting:
                await asyncio.sleep(_LOOK_AGAIN)
        finally:
            self._resting -= 1
            self._feed.wake()

    async def _run(self, handover: Handover, task: asyncio.Task[None]) -> None:
        self._running[handover] = task
        _HANDLED.set(handover)
        began = self._loop.time()
        try:
            await self._handle(handover, self.cancels)
        except asyncio.CancelledError:
            if handover not in self._lost:
                raise
        except GeneratorExit:
            # The loop is gone.
            raise
        except (KeyboardInterrupt, SystemExit) as problem:
            # It would be the end of the loop at once, if it got there: what is at work finishes before.
            self._exits(problem)
        except BaseException:
            # Never the end of a worker; the message comes back at its deadline.
            log.exception("%s: %s could not be handled", self._subscription.name, handover.id)
            handover.let_go()
        finally:
            _HANDLED.set(None)
            del self._running[handover]
            took = self._loop.time() - began
            self._lasts = took if self._lasts is None else self._lasts + _WEIGHT * (took - self._lasts)

    def _gone(self, handover: Handover) -> None:
        self._lost.discard(handover)
        self._here.discard(handover)
        if not self._here:
            self._idle.set()

    async def drain(self, grace: float, unsettled: Callable[[], bool]) -> None:
        """Give back what was not begun, let the rest finish for `grace` seconds, and what is still to be settled be
        settled; cancel what is left."""
        self.give_back()
        self._latest = min(self._latest, self._loop.time() + grace)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._latest) as self._grace:
                    await self._complete.wait()
                    await self._idle.wait()
                    while unsettled():
                        await asyncio.sleep(_LOOK_AGAIN)
            self._tell_of_what_is_lost()
        finally:
            self._cancel()
        _, stubborn = await asyncio.wait(self._tasks, timeout=STUBBORN)
        if stubborn:
            log.warning("%s was cancelled and does not end", self._subscription.name)
        self.over = True
        self._feed.wake()

    def _cancel(self) -> None:
        self._ending = True
        for task in self._tasks:
            task.cancel()

    def hurry(self, grace: float) -> None:
        """The grace is over in so many seconds at the latest."""
        self._latest = min(self._latest, self._loop.time() + grace)
        if self._grace is not None and not self._grace.expired() and not self._ending:
            self._grace.reschedule(self._latest)

    def give_back(self) -> None:
        """What waits, to whoever can begin it."""
        if self._subscription.acked_first:
            # Nobody would ever have it again.
            return
        while not self._waiting.empty():
            handover = self._waiting.get_nowait()
            if handover not in self._lost:
                handover.settle_soon(Outcome.RELEASE)
            self._gone(handover)

    def _tell_of_what_is_lost(self) -> None:
        for handover in self._here if self._subscription.acked_first else ():
            log.warning("%s: %s was acked at delivery, and is not done", self._subscription.name, handover.id)
