"""Runs turns for both databases: prepare, one-by-one fallback, commit, ledger."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ackwise.core import latency
from ackwise.core.answers import Result
from ackwise.core.commands import Command
from ackwise.core.errors import AckwiseError, StoreFull
from ackwise.core.events import EventPort, RequestsRefused, TurnFellBack
from ackwise.engine import runner
from ackwise.engine.turn import Tally, Turn
from ackwise.engine.turn_events import report_of
from ackwise.store.port import PreparedTurn

log = logging.getLogger("ackwise.store")

LEDGER_EVERY = 1_000_000
MOST_TALLIES = 1000
"""Counts of this many turns are kept apart until they are added up."""

Patience = AbstractContextManager[float | None]
"""Block around one command of a fallback. It yields the seconds to wait for each lock. None is the store's bound."""


class TurnWriter(Protocol):
    """One writing connection. Its lock is held from the first statement of a turn to the end of the turn."""

    lock: threading.Lock
    counts: LedgerCounts
    """Counts of its committed turns."""

    @property
    def announce(self) -> Callable[[set[str]], None] | None:
        """Notifies other brokers that messages of these queues became claimable. None if they look themselves."""
        ...

    def run_turn(self, commands: Sequence[Command], patience: float | None) -> tuple[Turn, list[Result]]:
        """Begin a transaction and run the statements of a turn."""
        ...

    def commit(self, turn: Turn) -> None: ...

    def roll_back(self) -> None: ...

    def is_hopeless(self, problem: Exception) -> bool:
        """Whether every command of the turn would fail in the same way."""
        ...

    def translate_error(self, problem: Exception) -> Exception: ...

    def patience_after(self, problem: Exception) -> Callable[[Command], Patience]:
        """How long each command waits for locks after its turn failed with this error."""
        ...


class TurnRunner:
    """Runs the turns of a store. Each shard has a writer.

    If a turn fails, its commands run one by one, and only the cause fails.
    """

    def __init__(self, writers: Sequence[TurnWriter], events: EventPort) -> None:
        self._writers, self._events = writers, events

    def prepare(self, commands: Sequence[Command], shard: int = 0) -> PreparedTurn:
        """Run the statements of a turn. If one fails unexpectedly, run and commit the commands one by one."""
        writer = self._writers[shard % len(self._writers)]
        try:
            return self._prepare(writer, commands)
        except Exception as problem:
            if len(commands) <= 1 or writer.is_hopeless(problem):
                raise writer.translate_error(problem) from problem
            cause = problem
        return self.run_one_by_one(writer, commands, cause)

    def _prepare(self, writer: TurnWriter, commands: Sequence[Command], patience: float | None = None) -> WriterTurn:
        writer.lock.acquire()
        try:
            began = time.perf_counter()
            turn, results = writer.run_turn(commands, patience)
            return WriterTurn(self, writer, turn, commands, results, began=began)
        except BaseException:
            abandon(writer)
            raise

    def run_one_by_one(self, writer: TurnWriter, commands: Sequence[Command], cause: Exception) -> CommittedTurns:
        """Run and commit each command in its own turn, so that a failure concerns one command only."""
        if self._events.listening:
            self._events.emit(TurnFellBack(len(commands), f"{type(cause).__name__}: {cause}"))
        results: list[Result] = []
        woken: dict[str, int] = {}
        offered: set[str] = set()
        patience_of = writer.patience_after(cause)
        for command in commands:
            try:
                with patience_of(command) as patience:
                    prepared = self._prepare(writer, [command], patience)
                prepared.commit()
            except Exception as problem:
                results.append(self._refusal(writer.translate_error(problem), problem))
            else:
                results += prepared.results
                offered |= prepared.offered
                for queue, count in prepared.woken.items():
                    woken[queue] = woken.get(queue, 0) + count
        return CommittedTurns(results, woken, offered)

    def _refusal(self, known: Exception, problem: Exception) -> AckwiseError:
        """The answer to a command that failed. A bug in one command must not fail the others."""
        if not isinstance(known, AckwiseError):
            known = AckwiseError(f"unexpected {type(problem).__name__}: {problem}")
        if self._events.listening:
            self._events.emit(RequestsRefused(known.code, 1))
        return known

    def commit(self, prepared: WriterTurn) -> None:
        turn, writer = prepared.turn, prepared.writer
        try:
            writer.commit(turn)
            if turn.tally or turn.ledger_written:
                writer.counts.committed(turn)
        finally:
            writer.lock.release()
        try:
            if writer.announce is not None and turn.announced:
                writer.announce(turn.announced)
            if self._events.listening:
                self._events.emit_later(report_of(turn, prepared.results, time.perf_counter() - prepared.began))
        except Exception:
            # The turn is committed: its callers must get their answers.
            log.exception("a committed turn could not be announced")


def abandon(writer: TurnWriter) -> None:
    """Roll back the turn of a writer and free the writer."""
    try:
        writer.roll_back()
    finally:
        writer.lock.release()


class WriterTurn:
    """A prepared turn. It holds its writer until `commit` or `abandon`."""

    def __init__(
        self,
        turns: TurnRunner,
        writer: TurnWriter,
        turn: Turn,
        commands: Sequence[Command],
        results: list[Result],
        *,
        began: float,
    ) -> None:
        self._turns, self._commands = turns, commands
        self.writer, self.turn, self.began = writer, turn, began
        self._ending = threading.Lock()
        self.results = results
        self.woken, self.offered = turn.woken, turn.offered
        self.nothing_to_commit = turn.wrote_nothing

    def commit(self) -> None:
        """Commit the turn. If the disk is full, the turn is rolled back and its commands run one by one."""
        if not self._ending.acquire(blocking=False):
            return
        try:
            self._turns.commit(self)
        except StoreFull as full:
            if len(self._commands) == 1:
                raise
            committed = self._turns.run_one_by_one(self.writer, self._commands, full)
            self.results, self.woken, self.offered = committed.results, committed.woken, committed.offered

    def abandon(self) -> None:
        if self._ending.acquire(blocking=False):
            abandon(self.writer)


class CommittedTurns:
    """Commands that failed in a shared turn and then ran and committed one by one."""

    nothing_to_commit = True

    def __init__(self, results: list[Result], woken: dict[str, int], offered: set[str]) -> None:
        self.results, self.woken, self.offered = results, woken, offered

    def commit(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class LedgerCounts:
    """Counts of committed turns. At most once a second a turn writes them to the ledger."""

    def __init__(self, writer_name: str, written_at: int = 0) -> None:
        self._writer_name = writer_name
        self._tallies: list[Tally] = []
        self.due_at = written_at + LEDGER_EVERY
        """The first turn at or after this instant writes the counts."""

    def __bool__(self) -> bool:
        """Whether memory holds counts that are not written yet."""
        return bool(self._tallies)

    def write_next(self) -> None:
        """Make the next turn write the counts."""
        self.due_at = 0

    def write(self, turn: Turn) -> None:
        """Write the counts together with those of this turn."""
        total = added([*self._tallies, turn.tally])
        if total:
            runner.write_ledger(turn.session, total, self._writer_name)
            turn.ledger_written = True

    def committed(self, turn: Turn) -> None:
        if turn.ledger_written:
            self._tallies, self.due_at = [], turn.now + LEDGER_EVERY
        elif turn.tally:
            if len(self._tallies) >= MOST_TALLIES:
                self._tallies = [added(self._tallies)]
            self._tallies.append(turn.tally)


def added(tallies: Sequence[Tally]) -> Tally:
    """The counts of several turns together."""
    total: Tally = {}
    for tally in tallies:
        for key, (count, times) in tally.items():
            before, known = total.get(key, (0, {}))
            total[key] = (before + count, latency.merged(known, times))
    return total
