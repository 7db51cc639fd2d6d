"""The app: handlers, fed from one URL."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from ackwise.client.moments import moment, seconds
from ackwise.connect import URL
from ackwise.core.errors import BadInput, Draining
from ackwise.core.limits import Seconds
from ackwise.store.clock import Clock, ManualClock
from ackwise.subscriber import asyncapi, health, tracing
from ackwise.subscriber.codecs import Codec, JSONCodec
from ackwise.subscriber.consumer import Consumer
from ackwise.subscriber.feeds.feed import Link
from ackwise.subscriber.handling import Handling, Middleware
from ackwise.subscriber.opening import open_link, shown
from ackwise.subscriber.policies import CloudEvents, Undecodable
from ackwise.subscriber.routing import Router
from ackwise.subscriber.subscription import Subscription
from ackwise.subscriber.tracing import INSTALLED

log = logging.getLogger("ackwise.subscriber")

Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]
GRACE = 30.0
START_PATIENCE = 15.0


class App(Router):
    """Usage::

        app = App("sqlite:///app.db")

        @app.subscriber("orders")
        async def bill(order: Order): ...

    Run it with `ackwise run module:app`, `asyncio.run(app.run())`, or `async with app:` inside your own program.
    """

    def __init__(
        self,
        url: URL,
        *,
        name: str = "ackwise",
        clock: Clock | None = None,
        codec: Codec | None = None,
        cloudevents: CloudEvents = "write",
        on_undecodable: Undecodable = "dead_letter",
        middleware: Sequence[Middleware] = (),
        lifespan: Lifespan | None = None,
        tracing: bool | None = None,
        start_patience: Seconds = START_PATIENCE,
    ) -> None:
        super().__init__(codec=codec or JSONCodec(), on_undecodable=on_undecodable)
        if tracing and not INSTALLED:
            raise BadInput("tracing=True needs OpenTelemetry: pip install 'ackwise[otel]'")
        self.url: URL = url
        self.name, self.clock = name, clock
        self.cloudevents = cloudevents
        self.middleware: list[Middleware] = list(middleware)
        self.dependency_overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        """What tests put in place of a dependency."""
        self._lifespan = lifespan
        self._tracing = tracing
        self._patience = seconds(start_patience, "start_patience")
        self._link: Link | None = None
        self._consumers: list[Consumer] = []
        self._draining: list[Consumer] = []
        self._stack: AsyncExitStack | None = None
        self._over: asyncio.Event | None = None
        """While it runs by itself: set when it shall end."""
        self._stopped: asyncio.Event | None = None
        """While it stops: set when that is done."""
        self._stopper: asyncio.Task[Any] | None = None
        self._grace = GRACE
        self._exiting: asyncio.Task[None] | None = None
        self.started = False
        """Latched when the app was up for the first time."""
        self.abandoned = 0
        """How many handlers still worked in threads when the grace was over: nobody can cancel these."""

    @property
    def source(self) -> str | None:
        return None if self.cloudevents == "off" else self.name

    @property
    def traced(self) -> bool:
        return tracing.wanted() if self._tracing is None else self._tracing

    def link(self) -> Link:
        if self._link is None:
            raise RuntimeError("the app is not started; use `async with app:` or `ackwise run`")
        return self._link

    def handling(self, subscription: Subscription, executor: ThreadPoolExecutor | None) -> Handling:
        return Handling(
            subscription,
            middleware=[tracing.handling, *self.middleware] if self.traced else self.middleware,
            instead=self.dependency_overrides,
            executor=executor,
            events=self.cloudevents,
            now=self._now,
        )

    def _now(self) -> datetime:
        return datetime.now(UTC) if self.clock is None else moment(self.clock.now())

    async def start(self) -> None:
        """Connect, and begin to take messages."""
        await self.connect()
        try:
            for subscription in self.subscriptions:
                consumer = Consumer(self, subscription, self.link().feed(subscription))
                await consumer.start()
                await self._refuse_if_stopped(consumer)
                self._consumers.append(consumer)
        except BaseException:
            if self._stopped is not None:
                await self._stopped.wait()
            elif self._over is None or not self._over.is_set():
                # Else `run` was told to stop, and knows how long that may take.
                await self._stop(0.0)
            raise
        self.started = True

    async def _refuse_if_stopped(self, late: Consumer) -> None:
        """A handler that runs already may have stopped the app meanwhile, and with it those that it had then."""
        if self._stopped is not None or self._link is None:
            late.stop_taking()
            await late.stop(0.0)
            raise Draining("the app was stopped while it started")

    async def connect(self) -> None:
        """Be able to publish, without taking messages."""
        self.refuse_if_started()
        async with AsyncExitStack() as stack:
            self._link = await open_link(self.url, self.clock, self._patience)
            stack.push_async_callback(self._disconnect)
            if self._lifespan is not None:
                await stack.enter_async_context(self._lifespan(self))
            self._stack = stack.pop_all()
        if isinstance(self.clock, ManualClock):
            loop = asyncio.get_running_loop()
            self.clock.on_move(lambda: _tell(loop, self._look))

    def refuse_if_started(self) -> None:
        if self._link is not None or self._stopped is not None:
            raise RuntimeError("the app is started already")

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    def _look(self) -> None:
        for consumer in (*self._consumers, *self._draining):
            consumer.look()

    async def stop(self, grace: Seconds = GRACE) -> None:
        """Take nothing more, let handlers finish for `grace` seconds, give the rest back unspent.

        If it stops already this waits for that, and the shorter grace counts; if this is cancelled the grace is over. A
        handler that asks for it does not wait: it is one of those that finish first.
        """
        waits = seconds(grace, "grace")
        if self._over is not None:
            self._over.set()
        await self._stop(waits)

    async def _stop(self, grace: float) -> None:
        inside = any(consumer.runs_caller for consumer in (*self._consumers, *self._draining))
        if self._stopped is not None:
            for consumer in self._draining:
                consumer.hurry(grace)
            if not inside and self._stopper is not asyncio.current_task():
                await self._stopped.wait()
            return
        self._stopped = asyncio.Event()
        self._draining, self._consumers = self._consumers, []
        for consumer in self._draining:
            consumer.stop_taking()
        ending = self._end(grace, self._stopped)
        if inside:
            self._stopper = asyncio.create_task(ending, name="ackwise-stop")
        else:
            self._stopper = asyncio.current_task()
            await ending

    async def _end(self, grace: float, stopped: asyncio.Event) -> None:
        try:
            if self._draining:
                await self._drain(self._draining, grace)
        finally:
            self._draining = []
            stack, self._stack = self._stack, None
            try:
                if stack is not None:
                    await stack.aclose()
            finally:
                self._stopped = self._stopper = None
                stopped.set()

    async def _drain(self, consumers: list[Consumer], grace: float) -> None:
        ends = asyncio.gather(
            self.link().stop_claims(), *(consumer.stop(grace) for consumer in consumers), return_exceptions=True
        )
        try:
            outcomes = await asyncio.shield(ends)
        except asyncio.CancelledError:
            # Nobody waits for it any more: what is held goes back. Cancelled again it does not even do that.
            for consumer in consumers:
                consumer.hurry()
            await ends
            raise
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                log.error("the app did not stop as it should", exc_info=outcome)
        self.abandoned = sum(consumer.in_threads for consumer in consumers)
        if self.abandoned:
            log.warning("%s handlers work on in threads; their messages went back", self.abandoned)

    def exits(self, problem: BaseException) -> None:
        """A handler ends the program: when the others have finished."""

        async def drained() -> None:
            await self.stop(self._grace)
            raise problem

        for consumer in self._consumers:
            # Now: a worker that finds something waiting begins it before any other task has its turn.
            consumer.stop_taking()
        if self._exiting is None or self._exiting.done():
            self._exiting = asyncio.create_task(drained(), name="ackwise-exit")
            # Out of a task it ends the loop, and whoever runs that: nobody needs to hear of it again.
            self._exiting.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def run(self, *, grace: Seconds = GRACE, health_port: int | None = None, host: str = "127.0.0.1") -> None:
        """Run until SIGTERM or Ctrl-C, which drain; a second one ends the grace. So do `stop`, and cancelling it.

        With a `health_port` it tells over HTTP how it is.
        """
        waits = seconds(grace, "grace")
        self.refuse_if_started()
        self._grace = waits
        over = self._over = asyncio.Event()
        loop = asyncio.get_running_loop()

        def told() -> None:
            over.set()
            for consumer in self._draining:
                consumer.hurry()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told)
        try:
            async with health.serving(self, host, health_port) as where:
                try:
                    if await self._started_before(over):
                        health_at = "" if where is None else f", health at {where}/health/ready"
                        log.info("%s subscribers run on %s%s", len(self.subscriptions), shown(self.url), health_at)
                        await over.wait()
                finally:
                    await self.stop(waits)
        finally:
            self._over = None
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _started_before(self, over: asyncio.Event) -> bool:
        """Whether it came up; not when it is told to stop while it still tries."""
        starting, told = asyncio.create_task(self.start()), asyncio.create_task(over.wait())
        try:
            await asyncio.wait((starting, told), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return False
            await starting
            return True
        finally:
            for task in (starting, told):
                task.cancel()
            await asyncio.gather(starting, told, return_exceptions=True)

    @property
    def live(self) -> bool:
        """Nothing in it has come to an end that should not have."""
        return all(consumer.alive for consumer in self._consumers)

    async def ready(self) -> bool:
        """It takes messages if it has handlers, and what it takes them from answers."""
        if not self.started or self._link is None or (self.subscriptions and not self._consumers):
            return False
        return await self._link.check()

    def asyncapi(self, *, title: str | None = None, version: str = "1.0.0") -> dict[str, Any]:
        """What it receives and sends, as an AsyncAPI document."""
        return asyncapi.document(self, title or self.name, version)

    async def __aenter__(self) -> App:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(what)
