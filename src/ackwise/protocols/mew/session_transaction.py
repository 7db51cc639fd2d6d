"""Open transaction of a session: keeps its steps and replays them together."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from ackwise.graph import ast as s
from ackwise.graph import errors as graph_errors
from ackwise.graph.commands import Done, Step, StepResults
from ackwise.graph.errors import GraphError
from ackwise.graph.parameters import Bindings, closed, spawned
from ackwise.protocols.mew.session_flow import Flow, Now
from ackwise.protocols.mew.transaction_memory import TransactionMemory, size_of

MOST_STEPS = 2000
"""Statements of one transaction. Each call with further statements replays all earlier ones."""
OUTSIDE_TRANSACTION = (s.Begin, s.Commit, s.Rollback, s.Watch, s.Manage, s.Alter, s.Tick)
"""Statements that cannot be steps of a transaction."""
_COUNTS = ("created", "linked", "modified", "deleted", "unlinked")


class Candidate(msgspec.Struct):
    """A statement of the text and the step that it becomes if the replay accepts it."""

    statement: s.Statement
    step: Step


class SessionTransaction:
    """Steps between BEGIN and COMMIT, and the session's names from before BEGIN."""

    def __init__(self, names: Mapping[str, str], memory: TransactionMemory) -> None:
        self.names_before = dict(names)
        self.steps: list[Step] = []
        self.failed = False
        """A step failed: the transaction is rolled back and waits for ROLLBACK or COMMIT."""
        self._memory, self._bytes = memory, 0

    def fail(self) -> None:
        self.failed = True
        self.forget()

    def forget(self) -> None:
        """Drop the steps and give their memory back."""
        self.steps = []
        self._memory.used -= self._bytes
        self._bytes = 0

    def restore(self, steps: Iterable[Step]) -> None:
        """Keep steps again that were taken for a commit which did not run."""
        for step in steps:
            self.add(step)

    def add(self, step: Step) -> None:
        """Keep a step for the commit, unless it only reads."""
        if not is_read(step.statement):
            self.steps.append(step)
            size = size_of(step.statement)
            self._bytes += size
            self._memory.used += size

    def gather(self, ahead: deque[s.Statement], bindings: Bindings) -> Flow[tuple[list[Candidate], GraphError | None]]:
        """Take the next steps from `ahead`, up to a statement that cannot be a step.

        Also returns the error of that statement, if it has one.
        """
        # All steps of a transaction share one instant.
        now = self.steps[0].now if self.steps else (yield Now())
        names = dict(bindings.names)
        bindings = msgspec.structs.replace(bindings, names=names)
        candidates: list[Candidate] = []
        size = 0
        while ahead and not isinstance(ahead[0], OUTSIDE_TRANSACTION):
            try:
                if len(self.steps) + len(candidates) >= MOST_STEPS:
                    raise graph_errors.constraint(f"a transaction has at most {MOST_STEPS} statements", ahead[0].at)
                statement = closed(ahead[0], bindings)
                size += size_of(statement)
                self._memory.check(self._bytes, size)
            except GraphError as problem:
                return candidates, problem.detached()
            candidates.append(Candidate(ahead.popleft(), Step(statement, mint(), now)))
            if isinstance(statement, s.Spawn | s.Link):
                # Later steps learn from the store which entity such a name stands for.
                for name in spawned((statement,)):
                    names.pop(name, None)
        return candidates, None


def is_read(statement: s.Statement) -> bool:
    """Whether the statement changes nothing."""
    return isinstance(statement, s.Inspect) or (isinstance(statement, s.Match) and not statement.mutations)


def mint() -> int:
    """Random first number for the entities of a step. Each replay uses the same number and makes the same ids."""
    return secrets.randbits(60) + 36**11


def total_of(ran: StepResults) -> Done:
    """The counts of all steps of a commit."""
    total = Done()
    for done in ran.done:
        for field in _COUNTS:
            setattr(total, field, getattr(total, field) + getattr(done, field))
    return total
