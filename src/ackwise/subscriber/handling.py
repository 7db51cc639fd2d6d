"""One message from its delivery to its settlement."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any
from weakref import WeakSet

from ackwise.core import limits
from ackwise.core.errors import BadInput
from ackwise.core.outcomes import Reject, Retry
from ackwise.core.settlement import Outcome
from ackwise.subscriber import cloudevents
from ackwise.subscriber.handover import Ask, Handover, Undecodable
from ackwise.subscriber.message import Message
from ackwise.subscriber.policies import CloudEvents
from ackwise.subscriber.subscription import Subscription

log = logging.getLogger("ackwise.subscriber")

LONGEST_LOGGED = 500

Call = Callable[[Message[Any]], Awaitable[Any]]
Middleware = Callable[[Message[Any], Call], Awaitable[Any]]
"""`async def around(msg, call_next): ... await call_next(msg) ...`; what it raises is what the handler raised."""


class Interrupted(Exception):
    """Something that a handler awaited was cancelled; nobody had cancelled the handler."""


class Handling:
    """Decodes, calls the handler and settles what is the app's to settle."""

    def __init__(
        self,
        subscription: Subscription,
        *,
        middleware: Sequence[Middleware] = (),
        instead: Mapping[Any, Any],
        executor: Executor | None = None,
        events: CloudEvents = "write",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._subscription, self._signature = subscription, subscription.signature
        assert subscription.read is not None, "no app has taken it in"
        self._read = subscription.read
        self._instead, self._executor, self._events, self._now = instead, executor, events, now
        self._loop = asyncio.get_running_loop()
        self._message: type[Message[Any]] = subscription.signature.message or Message
        call: Call = self._call_with_needs if subscription.signature.needs else self._call
        for around in reversed(middleware):
            call = _wrapped(around, call)
        self._around = call
        self._left: WeakSet[Message[Any]] = WeakSet()
        self._threads: set[int] = set()
        self._left_threads: list[Future[Any]] = []

    @property
    def unsettled(self) -> bool:
        """Whether somebody still has a message to settle that its handler left, and time to do so."""
        now = self._now()
        return any(one.unfinished and (one.deadline is None or one.deadline > now) for one in self._left)

    @property
    def in_threads(self) -> int:
        return len(self._threads)

    @property
    def left_in_threads(self) -> int:
        """How many of those nobody waits for any more."""
        self._left_threads = [one for one in self._left_threads if not one.done()]
        return len(self._left_threads)

    async def __call__(self, handover: Handover, cancels: Callable[[Handover], bool] = lambda _: False) -> None:
        """`cancels`: whether whoever calls has cancelled it. `Task.cancelling` does not tell: a task group of Python
        3.11 that failed leaves that behind."""
        message = self._decoded(handover)
        if message is None:
            return
        exiting: SystemExit | None = None
        try:
            await self._around(message)
        except GeneratorExit:
            # The loop is gone.
            raise
        except (asyncio.CancelledError, KeyboardInterrupt) as cause:
            if isinstance(cause, asyncio.CancelledError) and not cancels(handover):
                problem = Interrupted("something that it awaited was cancelled")
                problem.__cause__ = cause
                self._failed(message, problem)
            else:
                # It did nothing wrong: somebody else may begin at once.
                if not message.settled:
                    message.settle_soon(Outcome.RELEASE)
                raise
        except BaseException as problem:
            ask = _chosen(problem)
            if isinstance(ask, Retry | Reject):
                self._settle(message, ask)
            else:
                self._failed(message, problem)
            exiting = problem if isinstance(problem, SystemExit) else None
        else:
            if self._subscription.by_app:
                self._settle(message, Outcome.ACK)
            elif not self._over(message):
                self._unsettled(message)
        if message.unfinished:
            # Also if somebody settles it at this moment: whether that comes about is not known.
            handover.let_go()
            if self._subscription.explicit:
                self._left.add(message)
        if exiting is not None:
            raise exiting

    def _decoded(self, handover: Handover) -> Message[Any] | None:
        try:
            cloudevents.check(handover.headers, self._events)
            payload = self._read(handover.body)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as problem:
            # A codec of somebody's own may raise anything.
            why = problem if isinstance(problem, Undecodable) else Undecodable(f"{type(problem).__name__}: {problem}")
            told = limits.text(str(why), "error", LONGEST_LOGGED)
            log.warning("%s: %s of %s cannot be read: %s", self._subscription.name, handover.id, handover.queue, told)
            if handover.settleable:
                again = self._subscription.undecodable == "nak"
                handover.settle_soon(Retry(error=why) if again else why)
            return None
        return self._message(payload, handover, self._loop)

    def _settle(self, message: Message[Any], ask: Ask) -> None:
        if not self._subscription.acked_first:
            try:
                message.settle_soon(ask)
            except BadInput as problem:
                # What it asked for makes no sense, such as a negative delay: that is a failure like any other.
                log.warning("%s chose an outcome that is none: %s", self._subscription.name, problem)
                message.settle_soon(problem)
        elif isinstance(ask, Exception):
            log.warning(
                "%s raised %s for %s, which is not_settleable: it was acked when it was delivered",
                self._subscription.name,
                type(ask).__name__,
                message.id,
            )

    def _over(self, message: Message[Any]) -> bool:
        """Nothing is left to settle; NATS does not say so of what is acked at delivery."""
        return message.settled or self._subscription.acked_first

    def _failed(self, message: Message[Any], problem: BaseException) -> None:
        if self._subscription.by_app:
            log.warning("%s failed on %s", self._subscription.name, message.id, exc_info=problem)
            self._settle(message, problem if isinstance(problem, Exception) else Retry(error=problem))
        elif self._over(message):
            log.warning(
                "%s raised after %s was settled, which stands", self._subscription.name, message.id, exc_info=problem
            )
        else:
            self._unsettled(message, problem)

    def _unsettled(self, message: Message[Any], problem: BaseException | None = None) -> None:
        log.warning(
            "%s %s without settling %s; it waits for its deadline",
            self._subscription.name,
            "returned" if problem is None else "raised",
            message.id,
            exc_info=problem,
        )

    async def _call(self, message: Message[Any]) -> Any:
        given = message if self._signature.message is not None else message.payload
        return await self._run({self._signature.parameter: given})

    async def _call_with_needs(self, message: Message[Any]) -> Any:
        result, failures = None, list[BaseException]()
        async with AsyncExitStack() as stack:
            try:
                given = await self._signature.needs.fill(message, {}, stack, self._instead)
                given[self._signature.parameter] = message if self._signature.message is not None else message.payload
                result = await self._run(given)
            except BaseException as problem:
                failures.append(problem)
                raise
        if failures:
            # A dependency that catches what comes out of its `yield` does not turn a failure into a success.
            raise failures[0]
        return result

    async def _run(self, arguments: dict[str, Any]) -> Any:
        if self._signature.in_thread:
            assert self._executor is not None
            context = contextvars.copy_context()
            result = await self._ended(self._executor.submit(context.run, self._in_thread, arguments))
        else:
            result = self._subscription.handler(**arguments)
        return await result if inspect.isawaitable(result) else result

    async def _ended(self, thread: Future[Any]) -> Any:
        try:
            return await asyncio.wrap_future(thread)
        finally:
            if not thread.done():
                self._left_threads.append(thread)

    def _in_thread(self, arguments: dict[str, Any]) -> Any:
        here = threading.get_ident()
        self._threads.add(here)
        try:
            return self._subscription.handler(**arguments)
        except (StopIteration, SystemExit, KeyboardInterrupt) as problem:
            # No future can carry the first: whoever awaits would wait for ever. The others end a thread, not a program.
            told = f"{type(problem).__name__}: {problem}" if problem.args else type(problem).__name__
            raise RuntimeError(f"the handler raised {told}") from problem
        finally:
            self._threads.discard(here)


def _wrapped(around: Middleware, call: Call) -> Call:
    return lambda message: around(message, call)


def _chosen(problem: BaseException) -> BaseException:
    """A choice of outcome that comes out of a task group is one as well."""
    if not isinstance(problem, BaseExceptionGroup):
        return problem
    for kind in (Reject, Retry):
        found: BaseException | None = problem.subgroup(kind)
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if found is not None:
            return found
    return problem
