"""Statement group: consecutive statements outside a transaction that commit together."""

from __future__ import annotations

from collections import deque

import msgspec

from ackwise.graph import ast as s
from ackwise.graph.commands import Step
from ackwise.graph.errors import GraphError, statement_limit
from ackwise.graph.parameters import Bindings, closed, spawned
from ackwise.protocols.mew.session_transaction import Candidate, is_read, mint
from ackwise.protocols.mew.transaction_memory import MOST_EACH, size_of

FIRST_SIZE = 100
FIRST_BYTES = 1 << 20
"""Statements of a group, and their bytes. A larger group is committed in parts, where every minimum is met."""
MUTATIONS = (s.Spawn, s.Link, s.Set, s.Kill, s.Unlink)
_MEMBERS = (*MUTATIONS, s.Match, s.Inspect, s.OntologyDecl)


def is_mutation(statement: s.Statement) -> bool:
    """Whether a group may begin with the statement."""
    return isinstance(statement, MUTATIONS) or (isinstance(statement, s.Match) and not is_read(statement))


def _returns_rows(statement: s.Statement) -> bool:
    match statement:
        case s.Match(mutations=mutations) if mutations:
            return any(mutation.returning is not None for mutation in mutations)
        case s.Match() | s.Inspect():
            return True
        case s.Spawn() | s.Link() | s.Set() | s.Kill() | s.Unlink():
            return statement.returning is not None
        case _:
            return False


class StatementGroup:
    """The next statements of a text, up to one that must not run before the commit of those before it."""

    def __init__(self, ahead: deque[s.Statement], bindings: Bindings, *, rows: bool = True) -> None:
        """Without `rows` the group ends before a statement that returns rows: the answer may have no room for them."""
        self._ahead, self._bindings, self._rows = ahead, bindings, rows
        self.candidates: list[Candidate] = []
        self.is_cut = False
        """Further statements belong to the group."""
        self._most, self._most_bytes, self._bytes = FIRST_SIZE, FIRST_BYTES, 0
        self._take()

    def _take(self) -> None:
        """Take the next statements from the text. Ends with a mutation: later reads see the commit."""
        names = dict(self._bindings.names)
        bindings = msgspec.structs.replace(self._bindings, names=names)
        self._bytes = 0
        while self._ahead and self._is_member(self._ahead[0]) and not self._is_full():
            try:
                statement = closed(self._ahead[0], bindings)
            except GraphError:
                break  # the statement gets this error when its turn comes
            self.candidates.append(Candidate(self._ahead.popleft(), Step(statement, mint())))
            self._bytes += size_of(statement)
            if isinstance(statement, s.Spawn | s.Link):
                # Later steps learn from the store which entity such a name stands for.
                for name in spawned((statement,)):
                    names.pop(name, None)
        self.is_cut = self._is_full() and any(map(is_mutation, self._same_group()))
        while self.candidates and not is_mutation(self.candidates[-1].statement):
            self._ahead.appendleft(self.candidates.pop().statement)

    def _is_full(self) -> bool:
        return len(self.candidates) >= self._most or self._bytes >= self._most_bytes

    def _is_member(self, statement: s.Statement) -> bool:
        return isinstance(statement, _MEMBERS) and (self._rows or not _returns_rows(statement))

    def _same_group(self) -> list[s.Statement]:
        """The statements of the group that are still ahead."""
        members: list[s.Statement] = []
        for statement in self._ahead:
            if not self._is_member(statement):
                break
            members.append(statement)
        return members

    def give_back(self, count: int) -> None:
        """Put the statements behind the first `count` back."""
        self._ahead.extendleft(candidate.statement for candidate in reversed(self.candidates[count:]))
        del self.candidates[count:]

    def extend(self) -> None:
        """Take twice as many statements. Raises if they are too large for one commit."""
        if self._bytes < self._most_bytes:
            self._most *= 2
        elif self._most_bytes < MOST_EACH:
            self._most_bytes *= 2
        else:
            raise statement_limit("transaction", MOST_EACH)
        self.give_back(0)
        self._take()

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(candidate.step for candidate in self.candidates)
