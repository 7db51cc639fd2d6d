"""Concurrent workers of one handler."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar

from ackwise.core.settlement import Outcome
from ackwise.core.validation import MICROS, lease_micros
from ackwise.subscriber.feeds.port import Feed
from ackwise.subscriber.subscription import Subscription
from ackwise.subscriber.transport_delivery import TransportDelivery

log = logging.getLogger("ackwise.subscriber")

AHEAD = 0.05
"""Without `prefetch`, claim ahead what the workers handle in this many seconds."""
MOST_AHEAD = 256
_WEIGHT = 0.05
_CHECK_EVERY = 0.02
SLOW_LEASES = 10
"""Leases after which a running handler is reported."""
DEFAULT_LEASE = 30.0
"""Seconds of a lease if the subscriber names none."""
CANCEL_SECONDS = 2.0
"""Seconds that a cancelled handler has to end."""
_HANDLED: ContextVar[TransportDelivery | None] = ContextVar("ackwise_handled", default=None)
"""The delivery that the current handler works on. Its tasks and threads inherit the variable."""


class Workers:
    """Runs a handler for up to `concurrency` deliveries at a time, in the order of the queue."""

    def __init__(
        self,
        subscription: Subscription,
        feed: Feed,
        handle: Callable[[TransportDelivery, Callable[[TransportDelivery], bool]], Awaitable[None]],
        abandoned_threads: Callable[[], int],
        on_exit: Callable[[BaseException], None],
    ) -> None:
        self._subscription, self._feed, self._handle = subscription, feed, handle
        self._abandoned_threads, self._on_exit = abandoned_threads, on_exit
        self._blocked = 0
        """Number of workers that wait for an abandoned thread."""
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[TransportDelivery] = asyncio.Queue()
        self._running: dict[TransportDelivery, asyncio.Task[None]] = {}
        self._pending: set[TransportDelivery] = set()
        """Deliveries that wait or run."""
        self._lost: set[TransportDelivery] = set()
        self._mean_duration: float | None = None
        self._idle, self._complete = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._grace: asyncio.Timeout | None = None
        self._grace_end = math.inf
        """Loop time at which the grace is over."""
        self._ending = self.over = False
        """Whether the workers are drained: handlers settle nothing more."""
        self._began: dict[TransportDelivery, float] = {}
        """Loop time at which each running handler began. A handler that was reported as slow is not in it."""
        self._slow_check = self._loop.call_later(self._lease, self._report_slow)
        self._tasks = [self._begin(f"{subscription.name}-{number}") for number in range(subscription.concurrency)]

    @property
    def _lease(self) -> float:
        lease = self._subscription.lease
        return DEFAULT_LEASE if lease is None else lease_micros(lease) / MICROS

    def _report_slow(self) -> None:
        """Warn once about each handler that has run for ten leases: it may be stuck."""
        limit = SLOW_LEASES * self._lease
        for delivery, began in list(self._began.items()):
            if self._loop.time() - began > limit:
                del self._began[delivery]
                log.warning(
                    "%s has worked on %s for more than %g seconds; set timeout= to end such a handler",
                    self._subscription.name,
                    delivery.id,
                    limit,
                )
        self._slow_check = self._loop.call_later(self._lease, self._report_slow)

    def _begin(self, name: str) -> asyncio.Task[None]:
        return self._loop.create_task(self._work(), name=name)

    @property
    def alive(self) -> bool:
        return not any(task.done() for task in self._tasks)

    @property
    def runs_caller(self) -> bool:
        """Whether the caller runs inside one of these handlers: then it must not wait for them."""
        return _HANDLED.get() in self._running

    @property
    def room(self) -> int:
        free = self._subscription.concurrency - self._abandoned_threads()
        return free + self._ahead() - len(self._pending) if free > 0 else 0

    def _ahead(self) -> int:
        subscription = self._subscription
        if subscription.acked_first:
            # Claimed messages are acked already: claim only what starts at once.
            return 0
        if subscription.prefetch is not None:
            return subscription.prefetch
        if self._mean_duration is None:
            return 0
        return min(MOST_AHEAD, int(subscription.concurrency * AHEAD / max(self._mean_duration, 1e-5)))

    def put(self, delivery: TransportDelivery) -> None:
        self._idle.clear()
        self._pending.add(delivery)
        self._waiting.put_nowait(delivery)
        if self._blocked == self._subscription.concurrency:
            self.release_waiting()

    def end_of_input(self) -> None:
        """Note that the feed puts nothing more."""
        self._complete.set()

    def feed_ended(self) -> None:
        """Cancel idle workers after the feed has ended."""
        self.end_of_input()
        at_work = self._running.values()
        for task in self._tasks:
            if task not in at_work:
                task.cancel()

    def lost(self, delivery: TransportDelivery) -> None:
        if delivery not in self._pending:
            return
        self._lost.add(delivery)
        task = self._running.get(delivery)
        if task is not None:
            stopped = (
                "still runs in its thread without effect" if self._subscription.signature.in_thread else "is cancelled"
            )
            log.warning("%s lost the lease of %s and %s", self._subscription.name, delivery.id, stopped)
            task.cancel()

    def cancels(self, delivery: TransportDelivery) -> bool:
        """Whether these workers cancelled the delivery's handler."""
        return self._ending or delivery in self._lost

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        # A handler may swallow the cancellation of its worker, so check the flag as well.
        while not self._ending:
            if self._abandoned_threads() > self._blocked:
                await self._wait_for_thread()
            delivery = await self._waiting.get()
            if delivery not in self._lost:
                await self._run(delivery, task)
            self._remove(delivery)
            self._feed.wake()
            if task.cancelling() and not self._ending:
                # The worker was cancelled for a lost lease, or a failed task group of Python 3.11 left the mark. A new
                # task continues, so that a caller that cancelled this task, such as a closing loop, need not wait.
                self._tasks[self._tasks.index(task)] = self._begin(task.get_name())
                return

    async def _wait_for_thread(self) -> None:
        """Block this worker until an abandoned handler thread has ended.

        One worker blocks per abandoned thread. A message that such a worker claimed would only wait. If all workers are
        blocked, waiting messages are released to other consumers.
        """
        self._blocked += 1
        if self._blocked == self._subscription.concurrency:
            self.release_waiting()
        try:
            while self._abandoned_threads() >= self._blocked:
                await asyncio.sleep(_CHECK_EVERY)
        finally:
            self._blocked -= 1
            self._feed.wake()

    async def _run(self, delivery: TransportDelivery, task: asyncio.Task[None]) -> None:
        self._running[delivery] = task
        _HANDLED.set(delivery)
        began = self._began[delivery] = self._loop.time()
        try:
            await self._handle(delivery, self.cancels)
        except asyncio.CancelledError:
            if delivery not in self._lost:
                raise
        except GeneratorExit:
            # The event loop is closed.
            raise
        except (KeyboardInterrupt, SystemExit) as problem:
            # The exception would end the event loop at once. Let running handlers finish first.
            self._on_exit(problem)
        except BaseException:
            # A worker never ends by an error. The message comes back at its deadline.
            log.exception("%s: %s could not be handled", self._subscription.name, delivery.id)
            delivery.stop_keeping()
        finally:
            _HANDLED.set(None)
            del self._running[delivery]
            self._began.pop(delivery, None)
            took = self._loop.time() - began
            self._mean_duration = (
                took if self._mean_duration is None else self._mean_duration + _WEIGHT * (took - self._mean_duration)
            )

    def _remove(self, delivery: TransportDelivery) -> None:
        self._lost.discard(delivery)
        self._pending.discard(delivery)
        if not self._pending:
            self._idle.set()

    async def drain(self, grace: float, unsettled: Callable[[], bool]) -> None:
        """Release waiting deliveries and give running handlers `grace` seconds to finish. Then cancel the rest.

        Messages that handlers left unsettled have the same time to be settled.
        """
        self.release_waiting()
        self._grace_end = min(self._grace_end, self._loop.time() + grace)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._grace_end) as self._grace:
                    await self._complete.wait()
                    await self._idle.wait()
                    while unsettled():
                        await asyncio.sleep(_CHECK_EVERY)
            self._log_unfinished()
        finally:
            self._cancel()
        _, stubborn = await asyncio.wait(self._tasks, timeout=CANCEL_SECONDS)
        if stubborn:
            log.warning("%s was cancelled and still runs", self._subscription.name)
        self.over = True
        self._feed.wake()

    def _cancel(self) -> None:
        self._ending = True
        self._slow_check.cancel()
        for task in self._tasks:
            task.cancel()

    def shorten_grace(self, grace: float) -> None:
        """End the grace after at most `grace` seconds."""
        self._grace_end = min(self._grace_end, self._loop.time() + grace)
        if self._grace is not None and not self._grace.expired() and not self._ending:
            self._grace.reschedule(self._grace_end)

    def release_waiting(self) -> None:
        """Release the waiting deliveries, so that other consumers get them."""
        if self._subscription.acked_first:
            # Acked messages would be lost.
            return
        while not self._waiting.empty():
            delivery = self._waiting.get_nowait()
            if delivery not in self._lost:
                delivery.settle_soon(Outcome.RELEASE)
            self._remove(delivery)

    def _log_unfinished(self) -> None:
        for delivery in self._pending if self._subscription.acked_first else ():
            log.warning("%s: %s was acked at delivery and is not finished", self._subscription.name, delivery.id)
