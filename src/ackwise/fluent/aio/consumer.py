"""Claim, handle, again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from ackwise.client.aio import AsyncBatch
from ackwise.client.beside.aio import AsyncRunnable, on_sigterm, together
from ackwise.client.retrying import passes
from ackwise.core.claiming import EmptyReason
from ackwise.core.errors import AckwiseError, UnknownQueue
from ackwise.fluent.aio.handling import AsyncHandling
from ackwise.fluent.options import Options

if TYPE_CHECKING:
    from ackwise.fluent.aio.client import AsyncClient

log = logging.getLogger("ackwise.fluent")

PAUSE_AFTER_FAILURE = 1.0
SHORTEST_POLL = 1.0
PAUSE_WITHOUT_WAIT = 0.1
"""Between polls that do not wait themselves."""


class AsyncConsumer(AsyncRunnable):
    """A handler at work, until its limit, its idle time, a drain or SIGTERM.

    What the handler raises is a nack with its text, unless `on_error` says otherwise; of a list `Partial` is one for
    some, and a mapping that is returned chooses for each. What it leaves unsettled waits for its lease to run out.
    Trouble that passes is waited for; what does not pass is raised.
    """

    def __init__(self, client: AsyncClient, options: Options, handler: Callable[..., Any]) -> None:
        self._client, self._options = client, options
        self.handling = AsyncHandling(options, handler)
        self._guard = threading.Lock()
        self._left = options.limit
        self._last = 0.0
        self._asked: set[str] = set()
        """The keys of claims without an answer: they may have been granted."""

    def on_success(self, callback: Callable[..., Any]) -> AsyncConsumer:
        """Called with the message (or the list) when the handler returned."""
        self.handling.on_success = callback
        return self

    def on_error(self, callback: Callable[..., Any]) -> AsyncConsumer:
        """Called with the message (or the list) and the exception; nothing is nacked by itself then."""
        self.handling.on_error = callback
        return self

    async def run(self) -> None:
        self._last = time.monotonic()
        self.handling.begin(self._client.connection, self._client.sleep)
        with self._client.at_work(self), on_sigterm(self._client.terminate):
            await self._make_queue()
            await together(self._work, self._options.concurrency, self.stop, lambda: self.handling.busy)

    def stop(self) -> None:
        """Begin nothing more. What was claimed and not begun goes back."""
        self.handling.stopping = True

    async def _make_queue(self) -> None:
        made = await self._client.make(self._options)
        self.handling.rewinds = made.policy.get("on_failure") == "rewind"

    async def give_back(self) -> None:
        """Nobody asks for these claims again."""
        await self._let_go(self._asked)

    async def _let_go(self, keys: set[str]) -> None:
        if keys and not self._options.auto_ack:
            await self.handling.release([self._options.by_key(key) for key in sorted(keys)])

    async def _work(self) -> None:
        while not self.handling.stopping and await self.handling.rested(self._is_over):
            room, key = self._reserve(), token_hex(8)
            if not room:
                return
            try:
                batch = await self._claim(room, key)
            finally:
                if key in self._asked:
                    await self._let_go({key})
                    self._asked.discard(key)
            if batch is None:
                return
            self._give_up(room - len(batch))
            if batch:
                self._last = time.monotonic()
                await self.handling.handle(batch)
            elif batch.empty is EmptyReason.DRAINING or self._is_idle():
                return
            elif batch.empty is EmptyReason.UNAVAILABLE:
                await self._client.sleep(PAUSE_AFTER_FAILURE)
            elif not self._wait():
                await self._client.sleep(PAUSE_WITHOUT_WAIT)

    async def _claim(self, room: int, key: str) -> AsyncBatch | None:
        """None if there is no answer before it stops. A claim without one is asked for again."""
        self._asked.add(key)
        while not self.handling.stopping:
            try:
                batch = await self._client.claim(self._options, room, self._wait(), key)
            except AckwiseError as problem:
                await self._bear(problem)
            else:
                self._asked.discard(key)
                return batch
        return None

    async def _bear(self, problem: AckwiseError) -> None:
        """Wait for what passes to pass; raise what does not."""
        if self.handling.stopping:
            return
        if isinstance(problem, UnknownQueue):
            # Somebody deleted it: as at the beginning, it is made.
            with suppress(AckwiseError):
                await self._make_queue()
        elif not passes(problem):
            log.warning("the consumer of %s ends: %s", self._options.queue, problem)
            raise problem
        log.warning("%s: %s; trying again", self._options.queue, problem)
        await self._client.sleep(PAUSE_AFTER_FAILURE)

    def _reserve(self) -> int:
        """How many this worker may claim; with a limit they are taken off it before, and put back if none came."""
        with self._guard:
            room = self._options.batch if self._left is None else min(self._options.batch, self._left)
            self._left = None if self._left is None else self._left - room
        return room

    def _give_up(self, count: int) -> None:
        with self._guard:
            self._left = None if self._left is None else self._left + count

    def _wait(self) -> float:
        idle, lease = self._options.idle, self._options.lease
        waits = self._options.wait if idle is None else min(self._options.wait, idle)
        # One that is asked again, while another server still waits for the first try, learns of what that was given
        # when it ends: well before the lease does.
        return waits if lease is None else min(waits, max(SHORTEST_POLL, lease / 2))

    def _is_over(self) -> bool:
        return self.handling.stopping or self._left == 0 or self._is_idle()

    def _is_idle(self) -> bool:
        idle = self._options.idle
        return idle is not None and time.monotonic() - self._last >= idle
