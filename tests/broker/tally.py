"""A store that counts claims and breaks commits."""

from __future__ import annotations

from collections.abc import Sequence

from ackwise.core.commands import Claim, Command
from ackwise.store.port import PreparedTurn
from tests.broker.watched import WatchedStore


class TallyStore(WatchedStore):
    """Counts claims, and lets a test break a commit."""

    claims = 0
    break_commit: BaseException | None = None

    def prepare_turn(self, commands: Sequence[Command], shard: int = 0) -> PreparedTurn:
        self.claims += sum(isinstance(command, Claim) for command in commands)
        prepared = super().prepare_turn(commands, shard)
        problem, self.break_commit = self.break_commit, None
        return Broken(prepared, problem) if problem is not None else prepared


class Broken:
    """A turn that is interrupted right before its commit."""

    def __init__(self, prepared: PreparedTurn, problem: BaseException) -> None:
        self.results, self.woken, self.abandon = prepared.results, prepared.woken, prepared.abandon
        self.offered = prepared.offered
        self.nothing_to_commit = False
        self._problem = problem

    def commit(self) -> None:
        raise self._problem
