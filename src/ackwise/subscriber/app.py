"""The subscriber app: start, run, stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TypeVar, get_args

from ackwise.client.options import one_of
from ackwise.clock import Clock, ManualClock, wall_now
from ackwise.connect import URL
from ackwise.core import validation
from ackwise.core.errors import BadInput, Draining
from ackwise.core.extras import needed
from ackwise.core.validation import Seconds
from ackwise.observability.handler_counts import AppCounts
from ackwise.subscriber import asyncapi, health, tracing
from ackwise.subscriber.codecs import Codec, JSONCodec
from ackwise.subscriber.consumer import Consumer
from ackwise.subscriber.dead_letter_hooks import DeadLetterHook, OnDead
from ackwise.subscriber.feeds.port import TransportLink
from ackwise.subscriber.handler_runner import HandlerRunner, Middleware
from ackwise.subscriber.handler_threads import HandlerThreads
from ackwise.subscriber.links import masked, open_link
from ackwise.subscriber.router import Router
from ackwise.subscriber.subscription import CloudEvents, Subscription, UndecodablePolicy
from ackwise.subscriber.tracing import INSTALLED
from ackwise.subscriber.unawaited import watch_coroutines
from ackwise.wire.timestamps import moment, seconds

log = logging.getLogger("ackwise.subscriber")

F = TypeVar("F", bound=OnDead)
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]
GRACE = 30.0
START_PATIENCE = 15.0


class App(Router):
    """An app: handlers, publishers and the connection that feeds them.

    Usage::

        app = App("sqlite:///app.db")

        @app.subscriber("orders")
        async def bill(order: Order): ...

    Run it with `ackwise run module:app`, `asyncio.run(app.run())`, or `async with app:` inside your own program.

    - `url` is a store, a server, a list of servers, or a NATS server (`nats://…`).
    - `codec` decodes and encodes payloads, by default JSON.
    - `on_undecodable` decides about payloads that cannot be decoded: `"dead_letter"` or `"nak"`.
    - `middleware` are functions around each handler call, the first one outermost.
    - `lifespan` is an async context manager that surrounds the app's run.
    - `on_dead` is called for each dead letter of the app's queues: see `App.on_dead`.
    - `start_patience` is how many seconds the app tries to connect at its start.
    """

    def __init__(
        self,
        url: URL,
        *,
        name: str = "ackwise",
        clock: Clock | None = None,
        codec: Codec | None = None,
        cloudevents: CloudEvents = "write",
        on_undecodable: UndecodablePolicy = "dead_letter",
        middleware: Sequence[Middleware] = (),
        lifespan: Lifespan | None = None,
        tracing: bool | None = None,
        on_dead: OnDead | None = None,
        start_patience: Seconds = START_PATIENCE,
    ) -> None:
        super().__init__(codec=codec or JSONCodec(), on_undecodable=on_undecodable)
        if tracing and not INSTALLED:
            raise BadInput("tracing=True needs OpenTelemetry: pip install 'ackwise[otel]'")
        one_of(on_undecodable, get_args(UndecodablePolicy), "on_undecodable")
        one_of(cloudevents, get_args(CloudEvents), "cloudevents")
        if not isinstance(name, str):
            raise BadInput(f"name must be a string, not {name!r}")
        self.url: URL = url
        self.name, self.clock = name, clock
        self.cloudevents = cloudevents
        self.middleware: list[Middleware] = list(middleware)
        self.dependency_overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        """Replacements of dependencies, for tests."""
        self._lifespan = lifespan
        self._on_dead: list[tuple[str | None, OnDead]] = []
        """Functions for dead letters with their queues. None means every queue that the app subscribes to."""
        self._hooks: list[DeadLetterHook] = []
        if on_dead is not None:
            self._add_on_dead(None, on_dead)
        self._tracing = tracing
        self._patience = seconds(start_patience, "start_patience")
        self._link: TransportLink | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._consumers: list[Consumer] = []
        self._draining: list[Consumer] = []
        self._stack: AsyncExitStack | None = None
        self._end_requested: asyncio.Event | None = None
        """While `run` is active: set to end the app."""
        self._stopped: asyncio.Event | None = None
        """While the app stops: set when it has stopped."""
        self._stopper: asyncio.Task[Any] | None = None
        self._grace = GRACE
        self._counts = AppCounts()
        self._exiting: asyncio.Task[None] | None = None
        self.started = False
        """Whether the app has ever been up."""
        self.abandoned = 0
        """Handlers that still ran in threads when the grace was over. A thread cannot be cancelled."""

    def on_dead(self, queue: str) -> Callable[[F], F]:
        """Decorator: call the function with each `DeadLetter` of `queue` that dies from the app's first start on.

        The letters come in order and at least once, also those of other processes and those that died while the app was
        down. A function that raises is called again after 1 second, then after twice the time, up to 5 minutes. After
        24 hours of failures the hook pauses until the app starts again. One process of the app calls the function at a
        time. The store remembers the place under the app's name and the function's name.
        """
        if callable(queue):
            raise TypeError('name the queue: @app.on_dead("queue") instead of @app.on_dead')
        validation.name(queue, "queue")

        def declare(function: F) -> F:
            self._add_on_dead(queue, function)
            return function

        return declare

    def _add_on_dead(self, queue: str | None, function: OnDead) -> None:
        if not callable(function):
            raise BadInput(f"on_dead must be a function, not {function!r:.60}")
        self._on_dead.append((queue, function))

    async def _start_hooks(self) -> None:
        for queue, function in self._on_dead:
            name = f"app:{self.name}:{getattr(function, '__qualname__', type(function).__name__)}"
            for each in [queue] if queue is not None else dict.fromkeys(s.queue for s in self.subscriptions):
                hook = self.link().dead_letter_hook(each, name, function)
                self._hooks.append(hook)
                await hook.start()

    @property
    def source(self) -> str | None:
        return None if self.cloudevents == "off" else self.name

    @property
    def traced(self) -> bool:
        return tracing.is_configured() if self._tracing is None else self._tracing

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        return self._loop

    def link(self) -> TransportLink:
        if self._link is None:
            raise RuntimeError("the app is not started; use `async with app:` or `ackwise run`")
        return self._link

    def handler_runner(self, subscription: Subscription, executor: HandlerThreads | None) -> HandlerRunner:
        return HandlerRunner(
            subscription,
            middleware=[tracing.trace_handler, *self.middleware] if self.traced else self.middleware,
            overrides=self.dependency_overrides,
            executor=executor,
            events=self.cloudevents,
            now=self._now,
            counts=self._counts.of(subscription.name, subscription.queue),
        )

    def _now(self) -> datetime:
        return datetime.now(UTC) if self.clock is None else moment(wall_now(self.clock))

    async def start(self) -> None:
        """Connect and start to consume."""
        await self.connect()
        try:
            for subscription in self.subscriptions:
                consumer = Consumer(self, subscription, self.link().feed(subscription))
                await consumer.start()
                await self._check_not_stopped(consumer)
                self._consumers.append(consumer)
            await self._start_hooks()
        except BaseException:
            if self._stopped is not None:
                await self._stopped.wait()
            elif self._end_requested is None or not self._end_requested.is_set():
                # If `run` ends the app, `run` stops it with its own grace.
                await self._stop(0.0)
            raise
        self.started = True

    async def _check_not_stopped(self, late: Consumer) -> None:
        """Stop the consumer and raise `Draining` if a handler stopped the app during the start.

        `stop` did not stop this consumer, because the app's list did not have it yet.
        """
        if self._stopped is not None or self._link is None:
            late.stop_feed()
            await late.stop(0.0)
            raise Draining("the app was stopped while it started")

    async def connect(self) -> None:
        """Connect without consuming, so that publishers work."""
        self.check_not_started()
        async with AsyncExitStack() as stack:
            watch_coroutines()
            self._loop = asyncio.get_running_loop()
            self._link = await open_link(self.url, self.clock, self._patience, traced=self.traced)
            stack.push_async_callback(self._disconnect)
            if self._lifespan is not None:
                await stack.enter_async_context(self._lifespan(self))
            self._stack = stack.pop_all()
        if isinstance(self.clock, ManualClock):
            loop = asyncio.get_running_loop()
            self.clock.on_move(lambda: _call_in_loop(loop, self._clock_moved))

    def check_not_started(self) -> None:
        if self._link is not None or self._stopped is not None:
            raise RuntimeError("the app is started already")

    async def _disconnect(self) -> None:
        link, self._link, self._loop = self._link, None, None
        if link is not None:
            await link.close()

    def _clock_moved(self) -> None:
        for consumer in (*self._consumers, *self._draining):
            consumer.clock_moved()
        for hook in self._hooks:
            hook.wake()

    async def stop(self, grace: Seconds = GRACE) -> None:
        """Stop the app.

        The app stops claiming. Running handlers have `grace` seconds to finish. Then the app cancels them and releases
        their messages. A release costs no failure.

        If the app stops already, `stop` waits for that. The shorter grace counts. If you cancel `stop`, the grace is
        over. A handler may call `stop`: the call returns at once, because the app also waits for that handler.
        """
        waits = seconds(grace, "grace")
        if self._end_requested is not None:
            self._end_requested.set()
        await self._stop(waits)

    async def _stop(self, grace: float) -> None:
        inside = any(consumer.runs_caller for consumer in (*self._consumers, *self._draining))
        if self._stopped is not None:
            for consumer in self._draining:
                consumer.shorten_grace(grace)
            if not inside and self._stopper is not asyncio.current_task():
                await self._stopped.wait()
            return
        self._stopped = asyncio.Event()
        self._draining, self._consumers = self._consumers, []
        for consumer in self._draining:
            consumer.stop_feed()
        ending = self._end(grace, self._stopped)
        if inside:
            self._stopper = asyncio.create_task(ending, name="ackwise-stop")
        else:
            self._stopper = asyncio.current_task()
            await ending

    async def _end(self, grace: float, stopped: asyncio.Event) -> None:
        hooks, self._hooks = self._hooks, []
        try:
            stopping = [asyncio.create_task(hook.stop(grace)) for hook in hooks]
            if self._draining:
                await self._drain(self._draining, grace)
            await asyncio.gather(*stopping)
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
            # The caller of `stop` was cancelled: end the grace and release what is held. A second one ends even that.
            for consumer in consumers:
                consumer.shorten_grace()
            await ends
            raise
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                log.error("the app did not stop cleanly", exc_info=outcome)
        self.abandoned = sum(consumer.in_threads for consumer in consumers)
        if self.abandoned:
            log.warning("%s handlers still run in threads; their messages are released", self.abandoned)

    def exit_with(self, problem: BaseException) -> None:
        """End the program with `problem`, a handler's SystemExit or KeyboardInterrupt, after the app has drained."""

        async def drained() -> None:
            await self.stop(self._grace)
            raise problem

        for consumer in self._consumers:
            # Stop the feeds now: a worker may start a waiting message before any other task runs.
            consumer.stop_feed()
        if self._exiting is None or self._exiting.done():
            self._exiting = asyncio.create_task(drained(), name="ackwise-exit")
            # The exception leaves the task and ends the event loop. Reading it here avoids asyncio's second report.
            self._exiting.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def run(
        self,
        *,
        grace: Seconds = GRACE,
        health_port: int | None = None,
        host: str = "127.0.0.1",
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
    ) -> None:
        """Run the app until SIGTERM, Ctrl-C, `stop` or a cancellation, then drain it.

        Running handlers have `grace` seconds to finish. A second signal ends the grace. With `health_port` the app
        serves health endpoints over HTTP on `host`, with `metrics_port` metrics at `/metrics` on `metrics_host`.
        """
        waits = seconds(grace, "grace")
        self.check_not_started()
        if not self.subscriptions and not self._on_dead:
            raise BadInput(f'the app {self.name!r} has no handlers; declare one with @app.subscriber("queue")')
        self._grace = waits
        over = self._end_requested = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            over.set()
            for consumer in self._draining:
                consumer.shorten_grace()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        try:
            async with (
                health.serving(self, host, health_port) as where,
                health.serving_metrics(self.metrics, metrics_host, metrics_port) as metrics_at,
            ):
                try:
                    if await self._start_unless_ended(over):
                        places = [f", health at {where}/health/ready"] if where is not None else []
                        places += [f", metrics at {metrics_at}/metrics"] if metrics_at is not None else []
                        text = "".join(places)
                        log.info("%s subscribers run on %s%s", len(self.subscriptions), masked(self.url), text)
                        await over.wait()
                        log.info("the app stops; running handlers have %g seconds", waits)
                finally:
                    await self.stop(waits)
            log.info("the app has stopped")
        finally:
            self._end_requested = None
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _start_unless_ended(self, over: asyncio.Event) -> bool:
        """Start the app. Returns False if the end is requested before the start is done."""
        starting, ending = asyncio.create_task(self.start()), asyncio.create_task(over.wait())
        try:
            await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return False
            await starting
            return True
        finally:
            for task in (starting, ending):
                task.cancel()
            await asyncio.gather(starting, ending, return_exceptions=True)

    def metrics(self) -> bytes:
        """Metrics of the handlers, in the text format of Prometheus."""
        with needed("cli", "the metrics of an app"):
            from ackwise.observability.handler_metrics import app_exposition
        return app_exposition(self._counts, connected=self._link is not None and self._link.ready)

    @property
    def live(self) -> bool:
        """Whether all feeds and workers run."""
        return all(consumer.alive for consumer in self._consumers)

    async def ready(self) -> bool:
        """Whether the app consumes, if it has handlers, and its connection answers."""
        if not self.started or self._link is None or (self.subscriptions and not self._consumers):
            return False
        return await self._link.check()

    def asyncapi(self, *, title: str | None = None, version: str = "1.0.0") -> dict[str, Any]:
        """Describe the app's queues and payloads as an AsyncAPI document."""
        return asyncapi.document(self, title or self.name, version)

    async def __aenter__(self) -> App:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def _call_in_loop(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(what)
