"""One writing connection, one turn at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import psycopg
from psycopg import errors as pg

from ackwise.core.answers import Result
from ackwise.core.commands import Command
from ackwise.core.errors import OutcomeUnknown, StoreError, StoreUnavailable
from ackwise.engine import runner
from ackwise.engine.extensions import Extensions
from ackwise.engine.ports import Outdated
from ackwise.engine.turn import Turn
from ackwise.store.postgres import locks
from ackwise.store.postgres.connection import CONFLICT, Database, is_conflict, is_connection_lost
from ackwise.store.postgres.dedupe import TableDedupe
from ackwise.store.postgres.session import PostgresSession
from ackwise.store.turn_runner import LedgerCounts, Patience

TRIES = 12
STORE_BOUND = nullcontext()


class Writer:
    """Runs the turns of one shard. A turn holds `lock` from its first statement to its commit."""

    def __init__(
        self,
        database: Database,
        *,
        name: str,
        instance: str,
        seed: bytes,
        dice: random.Random,
        read_clock: Callable[[PostgresSession], tuple[int, int]],
        lanes: locks.LaneParts,
        rounds: dict[str, int],
        announce: Callable[[set[str]], None],
        extensions: Extensions,
    ) -> None:
        self.lock = threading.Lock()
        self._database, self._instance, self._seed = database, instance, seed
        self._dice, self._read_clock, self._lanes, self._rounds = dice, read_clock, lanes, rounds
        self.announce, self._extensions = announce, extensions
        self._session: PostgresSession | None = None
        self.counts = LedgerCounts(name)
        self._last_id = 0
        self.closed = False

    def run_turn(self, commands: Sequence[Command], patience: float | None) -> tuple[Turn, list[Result]]:
        """Run the statements of a turn. A single command tries again after a conflict with another transaction.

        `patience` bounds the wait for each lock, in seconds. Without it the store's own bound applies.
        """
        if self.closed:
            raise StoreUnavailable("the store is closed")
        for _ in range(TRIES - 1):
            try:
                return self._run(commands, patience)
            except (Outdated, psycopg.Error) as problem:
                if len(commands) > 1 or not (is_conflict(problem) or isinstance(problem, Outdated)):
                    raise
                self.roll_back()
        try:
            return self._run(commands, patience)
        except Outdated as problem:
            raise StoreUnavailable(f"{CONFLICT} ({problem})") from problem

    def _run(self, commands: Sequence[Command], patience: float | None) -> tuple[Turn, list[Result]]:
        session, dedupe = self._begin()
        if patience is not None:
            session.set_lock_timeout(patience)
        for statement in self._extensions.locks(commands):
            session.rows(statement)  # first, so that no turn waits for an extension while it holds a partition
        leases = locks.lock(session, commands, self._lanes)
        now, shift = self._read_clock(session)
        turn = Turn(
            session,
            dedupe,
            now=now,
            shift=shift,
            dice=self._dice,
            seed=self._seed,
            instance=self._instance,
            rounds=self._rounds,
            extensions=self._extensions,
        )
        turn.last_id = self._last_id
        turn.preload_leases(leases)
        results = runner.run(turn, commands)
        dedupe.write(turn.wall)
        if turn.now >= self.counts.due_at:
            self.counts.write(turn)
        return turn, results

    def _begin(self) -> tuple[PostgresSession, TableDedupe]:
        """Begin a transaction. Replaces a connection that broke while it was idle."""
        if self._session is not None:
            try:
                self._session.begin()
            except psycopg.Error as problem:
                self._database.health.note_lost(problem)
                self.drop()
        if self._session is None:
            self._session = PostgresSession(self._database.connect())
            self._session.begin()
        return self._session, TableDedupe(self._session)

    def commit(self, turn: Turn) -> None:
        """Commit, then update the memory of the writer. A commit whose answer is lost raises `OutcomeUnknown`."""
        session = self._session
        if session is None:
            raise StoreUnavailable("the turn has no connection")
        try:
            status = session.end()
        except psycopg.Error as problem:
            self.drop()
            if not is_connection_lost(problem):
                raise self._database.translate_error(problem) from problem
            self._database.health.note_lost(problem)
            raise OutcomeUnknown(f"{OutcomeUnknown.__doc__} ({self._database.where}: {problem})") from problem
        if status != "COMMIT":
            raise StoreError(f"{self._database.where} rolled the turn back; nothing was changed")
        self._last_id = turn.last_id

    def is_hopeless(self, problem: Exception) -> bool:
        return self.closed or is_connection_lost(problem) or isinstance(problem, StoreUnavailable)

    def translate_error(self, problem: Exception) -> Exception:
        return self._database.translate_error(problem)

    def patience_after(self, problem: Exception) -> Callable[[Command], Patience]:
        if isinstance(problem, pg.LockNotAvailable):
            return locks.LockBudget(self._database.url.busy_timeout).limit
        return lambda command: STORE_BOUND

    def roll_back(self) -> None:
        if self._session is not None:
            try:
                self._session.end(b"ROLLBACK")
            except psycopg.Error as problem:
                self._database.health.note_lost(problem)
                self.drop()

    def drop(self) -> None:
        """Close the connection. The next turn opens another."""
        session, self._session = self._session, None
        if session is not None:
            session.connection.close()
