# Generated from ../aio/consumer.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Claim, handle, again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ackwise.client.beside.threads import Runnable, call, kept, on_sigterm, together
from ackwise.client.sync import Batch
from ackwise.core.claiming import EmptyReason
from ackwise.core.errors import AckwiseError, LeaseLost, StoreError
from ackwise.core.settlement import Outcome
from ackwise.fluent.messages import Message
from ackwise.fluent.options import Options

if TYPE_CHECKING:
    from ackwise.fluent.sync.client import Client

log = logging.getLogger("ackwise.fluent")

RENEW_EVERY = 1.0
PAUSE_AFTER_FAILURE = 1.0
GRACE = 30.0


class Consumer(Runnable):
    """A handler at work, until its limit, its idle time, a drain or SIGTERM.

    What the handler raises is a nack with its text, unless `on_error` says otherwise. What it leaves unsettled waits
    for its lease to run out.
    """

    def __init__(self, client: Client, options: Options, handler: Callable[..., Any]) -> None:
        self._client, self._options, self._handler = client, options, handler
        self._on_success: Callable[..., Any] | None = None
        self._on_error: Callable[..., Any] | None = None
        self._guard = threading.Lock()
        self._left = options.limit
        self._last = 0.0

    def on_success(self, callback: Callable[..., Any]) -> Consumer:
        """Called with the message (or the list) when the handler returned."""
        self._on_success = callback
        return self

    def on_error(self, callback: Callable[..., Any]) -> Consumer:
        """Called with the message (or the list) and the exception; nothing is nacked by itself then."""
        self._on_error = callback
        return self

    def run(self) -> None:
        self._last = time.monotonic()
        self._client.connection.create_queue(self._options.queue, exist_ok=True)
        with on_sigterm(lambda: self._client.drain(GRACE)):
            together(self._work, self._options.concurrency)

    def _work(self) -> None:
        while (room := self._reserve()) > 0:
            try:
                batch = self._client.claim(self._options, room, self._wait())
            except StoreError as problem:
                self._give_up(room)
                log.warning("%s: %s; trying again", self._options.queue, problem)
                self._client.sleep(PAUSE_AFTER_FAILURE)
                continue
            self._give_up(room - len(batch))
            if batch:
                self._last = time.monotonic()
                self._handle_batch(batch)
            elif batch.empty is EmptyReason.DRAINING or self._is_idle():
                return

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
        idle = self._options.idle
        return self._options.wait if idle is None else min(self._options.wait, idle)

    def _is_idle(self) -> bool:
        idle = self._options.idle
        return idle is not None and time.monotonic() - self._last >= idle

    def _handle_batch(self, batch: Batch) -> None:
        messages = [Message(delivery) for delivery in batch]
        single = self._options.each or self._options.batch == 1
        try:
            for given in messages if single else [messages]:
                self._handle(given, batch)
        except BaseException:
            # Interrupted: somebody else may begin at once.
            with suppress(AckwiseError):
                self._settle_rest(messages, Outcome.RELEASE)
            raise

    def _handle(self, given: Any, batch: Batch) -> None:
        try:
            if self._options.renew and not batch.lease.ended:
                every = self._options.renew_every or min(RENEW_EVERY, batch.lease.lasts / 4)
                kept(lambda: call(self._handler, given), lambda: self._beat(batch), every)
            else:
                call(self._handler, given)
        except Exception as problem:
            self._failed(given, problem)
        else:
            if self._on_success is not None:
                self._told(self._on_success, given)

    def _failed(self, given: Any, problem: Exception) -> None:
        if self._on_error is not None:
            self._told(self._on_error, given, problem)
            return
        log.warning("the handler of %s failed: %s", self._options.queue, problem)
        if not isinstance(problem, LeaseLost):
            with suppress(AckwiseError):
                self._settle_rest(given if isinstance(given, list) else [given], problem)

    def _told(self, callback: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(callback, *arguments)
        except Exception as problem:
            log.warning("a callback of %s failed: %s", self._options.queue, problem)

    def _settle_rest(self, messages: list[Message], ask: Outcome | Exception) -> None:
        rest = [one.delivery for one in messages if one.delivery.verdict is None]
        if rest:
            self._client.connection.settle([(delivery, ask) for delivery in rest])

    def _beat(self, batch: Batch) -> bool:
        """Whether it is still ours."""
        lease = batch.lease
        try:
            if not lease.ended:
                (lease.keep_alive() if self._options.renew_every is None else lease.extend())
        except LeaseLost as problem:
            # All of it was settled meanwhile, by its transaction ids: nothing is left to lose.
            return lease.ended or problem.details.get("verdict") == "already"
        except AckwiseError as problem:
            log.warning("a lease of %s could not be renewed, and is tried again: %s", self._options.queue, problem)
        return True
