"""Retries of HTTP calls: which calls may be repeated, and what the answer to a repeated call means."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from ackwise.client.http_adapters.reply import AsyncHTTPAdapter, Broken, Reply, Unsent
from ackwise.client.resilience import PATIENCE, CallRetries, RetryPauses
from ackwise.client.server_url import error_of
from ackwise.core.answers import Settled
from ackwise.core.commands import (
    AdvanceGroup,
    ByTransaction,
    Command,
    ConfigureGroup,
    ConfigureQueue,
    PauseQueue,
    PruneQueue,
    PurgeQueue,
    ReportPipeline,
    Settle,
    Settlement,
    Transaction,
)
from ackwise.core.errors import CircuitOpen, Draining, StoreError, StoreUnavailable
from ackwise.core.settlement import Outcome, Verdict
from ackwise.core.validation import MICROS

TIMEOUT = 10.0
"""Seconds that an answer may take, in addition to the call's own wait."""
FIRST_PATIENCE = PATIENCE
"""Seconds that a first connection waits for a server that is not up yet, as long as an open connection does."""
LOST_AFTER = 2
"""Failures in a row after which the log says that the connection is lost."""
REFUSED_NOW = "the repeated call was refused"

T = TypeVar("T")
log = logging.getLogger("ackwise.client")


class AsyncHTTPCalls:
    """Sends HTTP calls to a server, repeats those that may be repeated, and follows the server's clock."""

    def __init__(
        self,
        adapter: AsyncHTTPAdapter,
        base: str,
        clock: Callable[[], int],
        *,
        patience: float = PATIENCE,
        pauses: RetryPauses | None = None,
    ) -> None:
        self._adapter, self._base, self._clock, self._patience = adapter, base, clock, patience
        self._pauses = pauses
        self._offset = self._shift = 0
        self._closed = False
        self._answered = False
        """Whether the server has ever answered."""
        self._failures = self._lost_at = 0
        """Failures in a row, and the local instant of the one that counts as a lost connection."""
        self.repeats = 0

    async def hello(self, patience: float | None = None) -> None:
        """Check that an Ackwise server answers, and read its clock.

        Waits up to `patience` seconds, 15 by default, for a server that is not up yet.
        """
        wait = FIRST_PATIENCE if patience is None else patience
        try:
            reply = await self._greet(0.0)
        except StoreUnavailable as problem:
            if self._pauses is not None or not wait:
                raise
            log.warning("%s; trying again for %g seconds", problem, wait)
            reply = await self._greet(wait)
        if reply.now is None:
            raise error_of(reply, self._base)

    async def _greet(self, patience: float) -> Reply:
        tries = self._tries(repeatable=True, reads=True, patience=patience if self._pauses is None else None)
        return await self._replied("GET", "/v1", b"", tries, TIMEOUT)

    def now(self) -> int:
        """The server's anchored clock in microseconds, extrapolated from its last answer."""
        return self._clock() + self._offset

    def _learn(self, reply: Reply) -> None:
        if reply.now is not None:
            clock = reply.now if reply.clock is None else reply.clock
            self._offset, self._shift = clock - self._clock(), clock - reply.now

    def wall_of(self, instant: int) -> int:
        """An instant of the server's anchored clock as people read it."""
        return instant - self._shift

    def _anchored(self, instant: int) -> int:
        """An instant of the server's wall clock, by its anchored clock. Answers contain instants of the wall clock."""
        return instant + self._shift

    async def _call(self, path: str, body: bytes, tries: CallRetries, wait: float = 0.0) -> bytes:
        return (await self._replied("POST", path, body, tries, wait + TIMEOUT)).body

    async def _replied(self, method: str, path: str, body: bytes, tries: CallRetries, timeout: float) -> Reply:
        while True:
            try:
                reply = await self._adapter.request(method, path, body, timeout)
            except Unsent as problem:
                self._note_lost(problem)
                pause = 0.0 if self._closed else tries.pause_after_unsent(problem)
            except Broken as problem:
                self._note_lost(problem)
                pause = tries.pause_after_broken(problem)
            except CircuitOpen as problem:
                raise tries.final_error(problem) from None
            else:
                self._learn(reply)
                self._note_back()
                if reply.status == 200:
                    self.repeats += tries.repeated
                    return reply
                pause = tries.pause_after_refusal(reply)
            if self._closed:
                raise tries.final_error(Draining("the connection is closed"))
            await self._adapter.sleep(pause)

    def _note_lost(self, problem: Exception) -> None:
        """Log a connection that fails twice in a row. A server closes idle connections, so one failure is usual."""
        self._failures += 1
        if self._failures == LOST_AFTER and self._answered:
            self._lost_at = self._clock()
            log.warning("connection to %s lost: %s; trying again", self._base, str(problem) or type(problem).__name__)

    def _note_back(self) -> None:
        if self._failures:
            if self._lost_at:
                log.info("connection to %s is back after %.1f s", self._base, (self._clock() - self._lost_at) / MICROS)
            self._failures = self._lost_at = 0
        self._answered = True

    def _tries(self, *, repeatable: bool, patience: float | None = None, reads: bool = False) -> CallRetries:
        # A call with a shorter patience of its own does not use the configured pauses.
        pauses = self._pauses if patience is None or patience >= self._patience else None
        patience = self._patience if patience is None else patience
        return CallRetries(self._base, patience, repeatable=repeatable, reads=reads, pauses=pauses)

    def _read(self, decoder: msgspec.json.Decoder[T], body: bytes) -> T:
        try:
            return decoder.decode(body)
        except msgspec.DecodeError as problem:
            raise StoreError(f"cannot decode the answer of {self._base}: {problem}") from None

    def _check_open(self) -> None:
        if self._closed:
            raise Draining("the connection is closed")


def is_repeatable(command: Command) -> bool:
    """Whether an admin command is idempotent."""
    if isinstance(command, ConfigureQueue):
        return not command.must_be_new
    if isinstance(command, PurgeQueue):
        return command.until is not None or command.behind is not None
    return isinstance(command, PauseQueue | ConfigureGroup | AdvanceGroup | PruneQueue | ReportPipeline)


def is_repeatable_transaction(command: Transaction) -> bool:
    """Whether a transaction may be repeated after a lost answer.

    It may not if it fails on duplicates or on messages that are settled already: the repeat would find the work of the
    first try. It may not if it requires leases, or if a settlement could apply to another delivery by then.
    """
    tolerant = command.repeatable or (command.on_duplicate == "ok" and command.on_already == "ok")
    return tolerant and not command.required_leases and all(map(settles_once, command.settlements))


def settles_once(entry: Settlement) -> bool:
    """Whether a repeated settlement applies to the same delivery.

    A transaction id without a lease selects the current delivery of a message. Before a repeat, another consumer may
    have received the message.
    """
    selector = entry.selector
    return entry.outcome is Outcome.ACK or not isinstance(selector, ByTransaction) or selector.lease_id is not None


def may_undo_itself(entries: Sequence[Settlement]) -> bool:
    """Whether the first try can make its own repeat fail.

    In a group with `on_failure=rewind` a failure also returns the messages after it. The acks of those messages, which
    succeeded in the first try, are refused in the repeat.
    """
    return len(entries) > 1 and any(entry.outcome is not Outcome.ACK for entry in entries)


def is_undone(command: Settle, answers: Sequence[Settled]) -> bool:
    """Whether the server rolled an atomic settlement back."""
    refused = any(not answer.verdict.settled and answer.verdict is not Verdict.ALREADY for answer in answers)
    return refused or (command.strict and any(answer.unacked for answer in answers))
