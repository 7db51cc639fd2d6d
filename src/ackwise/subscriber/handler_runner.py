"""Handles one message: decode, call the handler, settle."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any
from weakref import WeakSet

from ackwise.core import validation
from ackwise.core.errors import BadInput
from ackwise.core.settlement import Outcome, Reject, Retry
from ackwise.observability.debug_log import debug_records
from ackwise.observability.handler_counts import HandlerCounts
from ackwise.subscriber import cloudevents
from ackwise.subscriber.handler_threads import HandlerThreads
from ackwise.subscriber.message import Message
from ackwise.subscriber.subscription import CloudEvents, Subscription
from ackwise.subscriber.transport_delivery import Ask, TransportDelivery, Undecodable
from ackwise.subscriber.unawaited import no_unawaited_coroutine

log = logging.getLogger("ackwise.subscriber")

LONGEST_LOGGED = 500
MOST_STUCK = 100
"""Threads of one handler that may be stuck and replaced at the same time."""

Call = Callable[[Message[Any]], Awaitable[Any]]
Middleware = Callable[[Message[Any], Call], Awaitable[Any]]
"""`async def around(msg, call_next): … await call_next(msg) …`. Its exception counts as the handler's."""


class Interrupted(Exception):
    """A handler raised CancelledError although the app had not cancelled it: a task that it awaited was cancelled."""


class HandlerTimeout(TimeoutError):
    """A handler took longer than the `timeout` of its subscriber. Its message is retried."""


class HandlerRunner:
    """Decodes a message, calls the handler and settles the message if that is the app's part."""

    def __init__(
        self,
        subscription: Subscription,
        *,
        middleware: Sequence[Middleware] = (),
        overrides: Mapping[Any, Any],
        executor: HandlerThreads | None = None,
        events: CloudEvents = "write",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        counts: HandlerCounts | None = None,
    ) -> None:
        self._subscription, self._signature = subscription, subscription.signature
        assert subscription.read is not None, "no app has taken it in"
        self._read = subscription.read
        self._overrides, self._executor, self._events, self._now = overrides, executor, events, now
        self._loop = asyncio.get_running_loop()
        self._message: type[Message[Any]] = subscription.signature.message or Message
        call: Call = self._call_with_dependencies if subscription.signature.dependencies else self._call
        for around in reversed(middleware):
            call = _wrapped(around, call)
        self._around = call
        self._counts = counts or HandlerCounts(subscription.queue)
        self._unsettled_messages: WeakSet[Message[Any]] = WeakSet()
        self._is_async = inspect.iscoroutinefunction(subscription.handler)
        self._threads: set[int] = set()
        self._abandoned: list[Future[Any]] = []

    @property
    def unsettled(self) -> bool:
        """Whether a message is left that its handler did not settle and whose lease has not expired."""
        now = self._now()
        return any(
            message.unfinished and (message.deadline is None or message.deadline > now)
            for message in self._unsettled_messages
        )

    @property
    def in_threads(self) -> int:
        return len(self._threads)

    @property
    def abandoned_threads(self) -> int:
        """Number of handler threads that still run although their task was cancelled."""
        self._abandoned = [thread for thread in self._abandoned if not thread.done()]
        return len(self._abandoned)

    async def __call__(
        self, delivery: TransportDelivery, cancels: Callable[[TransportDelivery], bool] = lambda _: False
    ) -> None:
        """Handle one delivery. `cancels` returns whether the caller cancelled the handler.

        `Task.cancelling` is not reliable: in Python 3.11 a failed task group leaves its task marked as cancelled.
        """
        message = self._decode(delivery)
        if message is None:
            return
        self._counts.begin(delivery.attempt)
        began = time.perf_counter()
        try:
            exiting = await self._handle(message, lambda: cancels(delivery))
        finally:
            seconds = time.perf_counter() - began
            self._counts.end(seconds)
            debug_records.write(
                log,
                "handler ended",
                subscriber=self._subscription.name,
                queue=delivery.queue,
                id=delivery.id,
                attempt=delivery.attempt,
                ms=round(seconds * 1000, 3),
            )
        if message.unfinished:
            # Stop extending the lease, also if a settlement is in flight: its result is not known yet.
            delivery.stop_keeping()
            if self._subscription.explicit:
                self._unsettled_messages.add(message)
        if exiting is not None:
            raise exiting

    async def _handle(self, message: Message[Any], cancelled: Callable[[], bool]) -> SystemExit | None:
        """Call the handler and settle the message if that is the app's part. Returns the handler's SystemExit."""
        try:
            await self._around(message)
        except GeneratorExit:
            # The event loop is closed.
            raise
        except (asyncio.CancelledError, KeyboardInterrupt) as cause:
            if isinstance(cause, KeyboardInterrupt) or cancelled():
                # The handler was interrupted: release the message, so that another consumer gets it at once.
                if not message.settled:
                    message.settle_soon(Outcome.RELEASE)
                raise
            self._counts.failures += 1
            problem = Interrupted("a task that the handler awaited was cancelled")
            problem.__cause__ = cause
            self._failed(message, problem)
        except BaseException as problem:
            self._settle_failure(message, problem)
            return problem if isinstance(problem, SystemExit) else None
        else:
            if self._subscription.by_app:
                self._settle(message, Outcome.ACK)
            elif not self._is_settled(message):
                self._log_unsettled(message)
        return None

    def _settle_failure(self, message: Message[Any], problem: BaseException) -> None:
        """Settle a message whose handler raised."""
        self._counts.failures += 1
        ask = _chosen_outcome(problem)
        if isinstance(ask, Retry | Reject):
            self._settle(message, ask)
        elif isinstance(problem, HandlerTimeout) and not self._is_settled(message):
            # A handler that settles its messages itself cannot settle this one any more.
            log.warning("%s; %s is retried", problem, message.id)
            self._settle(message, problem)
        else:
            self._failed(message, problem)

    def _decode(self, delivery: TransportDelivery) -> Message[Any] | None:
        try:
            cloudevents.check(delivery.headers, self._events)
            payload = self._read(delivery.body)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as problem:
            # A user's codec may raise anything.
            why = problem if isinstance(problem, Undecodable) else Undecodable(f"{type(problem).__name__}: {problem}")
            text = validation.text(str(why), "error", LONGEST_LOGGED)
            log.warning("%s: %s of %s cannot be read: %s", self._subscription.name, delivery.id, delivery.queue, text)
            self._counts.failures += 1
            if delivery.settleable:
                self._counts.settles(why if self._subscription.undecodable == "nak" else Reject())
                again = self._subscription.undecodable == "nak"
                delivery.settle_soon(Retry(error=why) if again else why)
            return None
        return self._message(payload, delivery, self._loop, self._counts.settles)

    def _settle(self, message: Message[Any], ask: Ask) -> None:
        if not self._subscription.acked_first:
            try:
                message.settle_soon(ask)
            except BadInput as problem:
                # The handler chose an invalid outcome, such as a negative delay: that counts as a failure.
                log.warning("%s chose an invalid outcome: %s", self._subscription.name, problem)
                message.settle_soon(problem)
        elif isinstance(ask, Exception):
            log.warning(
                "%s raised %s for %s, which is not_settleable: it was acked at delivery",
                self._subscription.name,
                type(ask).__name__,
                message.id,
            )

    def _is_settled(self, message: Message[Any]) -> bool:
        """Whether the message needs no settlement. NATS does not mark a message acked at delivery as settled."""
        return message.settled or self._subscription.acked_first

    def _failed(self, message: Message[Any], problem: BaseException) -> None:
        if self._subscription.by_app:
            log.warning("%s failed on %s", self._subscription.name, message.id, exc_info=problem)
            self._settle(message, problem if isinstance(problem, Exception) else Retry(error=problem))
        elif self._is_settled(message):
            log.warning(
                "%s raised after %s was settled; the settlement stands",
                self._subscription.name,
                message.id,
                exc_info=problem,
            )
        else:
            self._log_unsettled(message, problem)

    def _log_unsettled(self, message: Message[Any], problem: BaseException | None = None) -> None:
        log.warning(
            "%s %s without settling %s; the message comes back at its deadline",
            self._subscription.name,
            "returned" if problem is None else "raised",
            message.id,
            exc_info=problem,
        )

    async def _call(self, message: Message[Any]) -> Any:
        argument = message if self._signature.message is not None else message.payload
        return await self._run({self._signature.parameter: argument})

    async def _call_with_dependencies(self, message: Message[Any]) -> Any:
        result, failures = None, list[BaseException]()
        async with AsyncExitStack() as stack:
            try:
                arguments = await self._signature.dependencies.fill(message, {}, stack, self._overrides)
                arguments[self._signature.parameter] = (
                    message if self._signature.message is not None else message.payload
                )
                result = await self._run(arguments)
            except BaseException as problem:
                failures.append(problem)
                raise
        if failures:
            # A dependency that swallows the exception at its `yield` does not turn a failure into a success.
            raise failures[0]
        return result

    async def _run(self, arguments: dict[str, Any]) -> Any:
        """Call the handler, for at most `timeout` seconds."""
        seconds = self._subscription.timeout
        if seconds is None:
            return await self._invoke(arguments)
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self._invoke(arguments)
        except TimeoutError as problem:
            if not limit.expired():
                raise
            self._replace_thread()
            raise HandlerTimeout(f"{self._subscription.name} took longer than {seconds:g} seconds") from problem

    def _replace_thread(self) -> None:
        """Abandon a handler that is stuck in its thread. A new thread replaces the stuck one.

        Python cannot stop a thread, so the stuck thread continues. The number of stuck threads is bounded. At the bound
        the worker waits until one of them ends.
        """
        stuck = [thread for thread in self._abandoned if not thread.done()]
        if not stuck or self._executor is None or self._executor.stuck >= MOST_STUCK:
            return
        self._abandoned.remove(stuck[-1])
        self._executor.replace(stuck[-1])
        log.warning(
            "%s: a handler is stuck in its thread, which is replaced; %d such threads run without effect",
            self._subscription.name,
            self._executor.stuck,
        )

    async def _invoke(self, arguments: dict[str, Any]) -> Any:
        if self._signature.in_thread:
            assert self._executor is not None
            context = contextvars.copy_context()
            result = await self._wait_for_thread(self._executor.submit(context.run, self._in_thread, arguments))
        elif self._is_async:
            result = self._subscription.handler(**arguments)
        else:
            result = self._call_function(arguments)
        return await result if inspect.isawaitable(result) else result

    def _call_function(self, arguments: dict[str, Any]) -> Any:
        with no_unawaited_coroutine():
            return self._subscription.handler(**arguments)

    async def _wait_for_thread(self, thread: Future[Any]) -> Any:
        try:
            return await asyncio.wrap_future(thread)
        finally:
            if not thread.done():
                self._abandoned.append(thread)

    def _in_thread(self, arguments: dict[str, Any]) -> Any:
        thread_id = threading.get_ident()
        self._threads.add(thread_id)
        try:
            return self._call_function(arguments)
        except (StopIteration, SystemExit, KeyboardInterrupt) as problem:
            # A future cannot carry StopIteration: the awaiting task would never wake. The other two end only a thread.
            text = f"{type(problem).__name__}: {problem}" if problem.args else type(problem).__name__
            raise RuntimeError(f"the handler raised {text}") from problem
        finally:
            self._threads.discard(thread_id)


def _wrapped(around: Middleware, call: Call) -> Call:
    return lambda message: around(message, call)


def _chosen_outcome(problem: BaseException) -> BaseException:
    """The `Retry` or `Reject` in an exception group, or the exception itself."""
    if not isinstance(problem, BaseExceptionGroup):
        return problem
    for kind in (Reject, Retry):
        chosen: BaseException | None = problem.subgroup(kind)
        while isinstance(chosen, BaseExceptionGroup):
            chosen = chosen.exceptions[0]
        if chosen is not None:
            return chosen
    return problem
