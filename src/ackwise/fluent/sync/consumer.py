# Generated from ../aio/consumer.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Consumer: claims batches and passes them to a handler."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from ackwise.client.concurrency.threads import Runnable, on_sigterm, run_workers
from ackwise.client.resilience import is_transient
from ackwise.client.sync import Batch
from ackwise.core.errors import AckwiseError, UnknownQueue
from ackwise.core.lane_selection import EmptyReason
from ackwise.fluent.options import Options
from ackwise.fluent.sync.batch_handler import BatchHandler

if TYPE_CHECKING:
    from ackwise.fluent.sync.client import Client

log = logging.getLogger("ackwise.fluent")

PAUSE_AFTER_FAILURE = 1.0
SHORTEST_POLL = 1.0
PAUSE_WITHOUT_WAIT = 0.1
"""Seconds between two polls if a poll itself does not wait."""


class Consumer(Runnable):
    """Runs a handler until the limit, the idle time, a drain or SIGTERM ends it.

    If the handler raises, the consumer nacks the message with the exception's text, unless there is an `on_error`
    callback. A handler of lists may raise `Partial`, or return a mapping from messages to outcomes. A message that the
    handler leaves unsettled comes back when its lease expires. The consumer retries after transient errors and raises
    all others.
    """

    def __init__(self, client: Client, options: Options, handler: Callable[..., Any]) -> None:
        self._client, self._options = client, options
        self.batch_handler = BatchHandler(options, handler)
        self._guard = threading.Lock()
        self._remaining = options.limit
        self._last_message_at = 0.0
        self._unanswered: set[str] = set()
        """Keys of claims without an answer. The server may have granted these claims."""

    def on_success(self, callback: Callable[..., Any]) -> Consumer:
        """Call `callback` with the message (or the list) after the handler returned."""
        self.batch_handler.on_success = callback
        return self

    def on_error(self, callback: Callable[..., Any]) -> Consumer:
        """Call `callback` with the message (or the list) and the exception. The consumer nacks nothing then."""
        self.batch_handler.on_error = callback
        return self

    def run(self) -> None:
        """Consume until the consumer ends."""
        self._last_message_at = time.monotonic()
        self.batch_handler.begin(self._client.connection, self._client.sleep)
        try:
            with self._client.running(self), on_sigterm(self._client.terminate):
                self._ensure_queue()
                run_workers(self._work, self._options.concurrency, self.stop, lambda: self.batch_handler.busy)
        finally:
            self.batch_handler.close()

    def stop(self) -> None:
        """Start no further handler. The consumer releases the messages that are claimed and not started."""
        self.batch_handler.stopping = True

    def _ensure_queue(self) -> None:
        queue = self._client.ensure_queue(self._options)
        self.batch_handler.rewinds = queue.policy.get("on_failure") == "rewind"

    def release_unanswered(self) -> None:
        """Release the claims without an answer, because the consumer does not repeat them."""
        self._release_keys(self._unanswered)

    def _release_keys(self, keys: set[str]) -> None:
        if keys and not self._options.auto_ack:
            self.batch_handler.release([self._options.by_key(key) for key in sorted(keys)])

    def _work(self) -> None:
        while not self.batch_handler.stopping and self.batch_handler.wait_for_threads(self._is_over):
            room, key = self._reserve(), token_hex(8)
            if not room:
                return
            try:
                batch = self._claim(room, key)
            finally:
                if key in self._unanswered:
                    self._release_keys({key})
                    self._unanswered.discard(key)
            if batch is None:
                return
            self._return_reserved(room - len(batch))
            if batch:
                self._last_message_at = time.monotonic()
                self.batch_handler.handle(batch)
            elif batch.empty is EmptyReason.DRAINING or self._is_idle():
                return
            elif batch.empty is EmptyReason.UNAVAILABLE:
                self._client.sleep(PAUSE_AFTER_FAILURE)
            elif not self._wait():
                self._client.sleep(PAUSE_WITHOUT_WAIT)

    def _claim(self, room: int, key: str) -> Batch | None:
        """Claim a batch. Repeat the claim while there is no answer. None if the consumer stops before."""
        self._unanswered.add(key)
        while not self.batch_handler.stopping:
            try:
                batch = self._client.claim(self._options, room, self._wait(), key)
            except AckwiseError as problem:
                self._recover(problem)
            else:
                self._unanswered.discard(key)
                return batch
        return None

    def _recover(self, problem: AckwiseError) -> None:
        """Pause after a transient error and create a deleted queue again. Raise any other error."""
        if self.batch_handler.stopping:
            return
        if isinstance(problem, UnknownQueue):
            # The queue was deleted meanwhile.
            with suppress(AckwiseError):
                self._ensure_queue()
        elif not is_transient(problem):
            log.warning("the consumer of %s ends: %s", self._options.queue, problem)
            raise problem
        log.warning("%s: %s; trying again", self._options.queue, problem)
        self._client.sleep(PAUSE_AFTER_FAILURE)

    def _reserve(self) -> int:
        """Reserve messages of the limit for one claim. Returns how many this worker may claim."""
        with self._guard:
            room = self._options.batch if self._remaining is None else min(self._options.batch, self._remaining)
            self._remaining = None if self._remaining is None else self._remaining - room
        return room

    def _return_reserved(self, count: int) -> None:
        """Return to the limit the reserved messages that a claim did not get."""
        with self._guard:
            self._remaining = None if self._remaining is None else self._remaining + count

    def _wait(self) -> float:
        idle, lease = self._options.idle, self._options.lease
        waits = self._options.wait if idle is None else min(self._options.wait, idle)
        # After a lost answer, the first try may still wait on another server and be granted messages. The repeated
        # claim learns of them when its own wait ends, which must be well before the lease expires.
        return waits if lease is None else min(waits, max(SHORTEST_POLL, lease / 2))

    def _is_over(self) -> bool:
        return self.batch_handler.stopping or self._remaining == 0 or self._is_idle()

    def _is_idle(self) -> bool:
        idle = self._options.idle
        return idle is not None and time.monotonic() - self._last_message_at >= idle
