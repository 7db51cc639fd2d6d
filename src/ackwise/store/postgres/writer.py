"""A connection that writes, one turn at a time. Brokers give each queue its own, so no queue waits for another."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

import psycopg

from ackwise.core.commands import Command
from ackwise.core.errors import OutcomeUnknown, StoreError, StoreUnavailable
from ackwise.store.port import Result
from ackwise.store.postgres import locks
from ackwise.store.postgres.connection import OTHERS_IN_THE_WAY, Server, again, lost
from ackwise.store.postgres.dedupe import TableDedupe
from ackwise.store.postgres.session import PostgresSession
from ackwise.store.session import Outdated
from ackwise.store.turn import engine
from ackwise.store.turn.context import Tally, Turn, added

LEDGER_EVERY = 1_000_000
TRIES = 12


class Writer:
    """`lock` is held from the first statement of a turn to its commit."""

    def __init__(
        self,
        server: Server,
        *,
        name: str,
        instance: str,
        seed: bytes,
        dice: random.Random,
        now: Callable[[PostgresSession], int],
        lanes: locks.LaneParts,
        rounds: dict[str, int],
    ) -> None:
        self.lock = threading.Lock()
        self._server, self._name, self._instance, self._seed = server, name, instance, seed
        self._dice, self._now, self._lanes, self._rounds = dice, now, lanes, rounds
        self._session: PostgresSession | None = None
        self._tally: Tally = {}
        self._ledger_at = 0
        self._last_id = 0

    @property
    def counting(self) -> bool:
        """Whether counts wait in memory to be written."""
        return bool(self._tally)

    def count_now(self) -> None:
        """The next turn writes the counts."""
        self._ledger_at = 0

    def attempt(self, commands: Sequence[Command], patience: float | None = None) -> tuple[Turn, list[Result]]:
        """Run the turn's statements. Whoever is alone in its turn tries again when others got in the way.

        `patience` bounds the wait for each lock where the store's own bound is too long.
        """
        for _ in range(TRIES - 1):
            try:
                return self._run(commands, patience)
            except (Outdated, psycopg.Error) as problem:
                if len(commands) > 1 or not (again(problem) or isinstance(problem, Outdated)):
                    raise
                self.roll_back()
        try:
            return self._run(commands, patience)
        except Outdated as problem:
            raise StoreUnavailable(f"{OTHERS_IN_THE_WAY} ({problem})") from problem

    def _run(self, commands: Sequence[Command], patience: float | None) -> tuple[Turn, list[Result]]:
        session, dedupe = self._begin()
        if patience is not None:
            session.wait_at_most(patience)
        leases = locks.lock(session, commands, self._lanes)
        turn = Turn(
            session,
            dedupe,
            now=self._now(session),
            dice=self._dice,
            seed=self._seed,
            instance=self._instance,
            rounds=self._rounds,
        )
        turn.last_id = self._last_id
        turn.know_leases(leases)
        results = engine.run(turn, commands)
        self._finish(turn, dedupe)
        return turn, results

    def _begin(self) -> tuple[PostgresSession, TableDedupe]:
        """A new transaction; a connection that died while nobody used it is replaced."""
        if self._session is not None:
            try:
                self._session.begin()
            except psycopg.Error:
                self.drop()
        if self._session is None:
            self._session = PostgresSession(self._server.connect())
            self._session.begin()
        return self._session, TableDedupe(self._session)

    def _finish(self, turn: Turn, dedupe: TableDedupe) -> None:
        """The last statements of a turn: dedupe keys, and the ledger once a second."""
        dedupe.write(turn.now)
        if turn.now - self._ledger_at >= LEDGER_EVERY and (self._tally or turn.tally):
            engine.write_ledger(turn.session, added(self._tally, turn.tally), self._name)
            turn.tally = {}
            turn.ledger_written = True

    def commit(self, turn: Turn) -> None:
        """Make it durable, then known. A commit whose answer is lost is said to be unknown."""
        session = self._session
        if session is None:
            raise StoreUnavailable("the turn has no connection")
        try:
            done = session.end()
        except psycopg.Error as problem:
            self.drop()
            if not lost(problem):
                raise self._server.translated(problem) from problem
            raise OutcomeUnknown(f"{OutcomeUnknown.__doc__} ({self._server.where}: {problem})") from problem
        if done != "COMMIT":
            raise StoreError(f"{self._server.where} rolled the turn back; nothing was changed")
        self._last_id = turn.last_id
        if turn.ledger_written:
            self._tally, self._ledger_at = {}, turn.now
        self._tally = added(self._tally, turn.tally)

    def roll_back(self) -> None:
        if self._session is not None:
            try:
                self._session.end(b"ROLLBACK")
            except psycopg.Error:
                self.drop()

    def drop(self) -> None:
        """Close the connection; the next turn opens another."""
        session, self._session = self._session, None
        if session is not None:
            session.connection.close()
