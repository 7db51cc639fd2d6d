"""Claims by namespace or task: the queues that such a claim joins and visits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ackwise.core.answers import Claimed, ClaimProgress
from ackwise.core.commands import Claim
from ackwise.core.lane_selection import EmptyReason
from ackwise.engine import catalog
from ackwise.engine.catalog import QueueRow
from ackwise.engine.ports import Row
from ackwise.engine.turn import Turn

MOST_JOINED = 100
"""Queues in which all claims of one turn together create their groups."""
MOST_FRUITLESS = 100
"""Queues that all claims of one turn together visit without finding a message."""
FEW = 16
"""Queues that a claim reads first. The first of them has a message for most claims."""


class TagBudget:
    """Budget of claims by namespace or task for the rest of their turn. They share one budget."""

    def __init__(self) -> None:
        self.joins = MOST_JOINED
        self.visits = MOST_FRUITLESS


class QueueClaim(Protocol):
    """The claim on one of the queues."""

    def run(self) -> Claimed: ...

    def repeated(self) -> Claimed | None:
        """The answer to a repeated claim key. None for a new key."""
        ...


def claim_by_tag(turn: Turn, command: Claim, claim_of: Callable[[QueueRow], QueueClaim]) -> Claimed:
    """Claim from the queues of a namespace and task, longest ready first.

    The claim creates its group in queues that lack it. A group that starts at `all` joins an empty queue with its
    first message, because its position is the same then. A group that starts at `new` joins every queue. A group that
    starts at an instant joins some empty queues with each claim: the next claim may name a later instant.

    One turn joins and visits a bounded number of queues. If queues are left, the answer has `more`, and the claim
    continues in a later turn. The answer of the last turn is empty only if every queue of the group was visited after
    the group had joined all queues.

    What a claim with the start `new` promises while its join is still running:

    - Messages stored before the first turn are not delivered.
    - Messages stored after the first turn are delivered, also from queues that the group joins later. The engine
      compares instants, so a clock that is set back meanwhile makes newer messages look old. On PostgreSQL the same
      holds for a turn that began before the first turn of the claim and commits later.
    - If the caller leaves or the broker stops before the join is complete, the queues that are left start at the
      next claim.
    """
    return _TagSearch(turn, command, command.progress or ClaimProgress(turn.wall), claim_of).run()


class _TagSearch:
    """One turn of a claim by namespace or task."""

    def __init__(
        self, turn: Turn, command: Claim, progress: ClaimProgress, claim_of: Callable[[QueueRow], QueueClaim]
    ) -> None:
        self._turn, self._command, self._progress, self._claim_of = turn, command, progress, claim_of
        self._budget = turn.state(TagBudget)
        self._empty = Claimed(command.group, [], empty=progress.empty, until=progress.until)
        self._last = progress.visited

    def run(self) -> Claimed:
        if self._command.key is not None and (answer := self._repeated()) is not None:
            return answer
        after = self._progress.joined
        if after is None:
            return self._visit_by_name(self._progress.visited)
        queues, joined = self._join(after)
        if not after:
            # The first turn. Queues that the group joined earlier may have been ready for longer.
            answer, complete = self._visit(longest_ready(self._turn, self._command))
        else:
            # With another start than `all`, a joined queue may have no message for the group.
            answer, complete = self._visit(queues if self._command.start == "all" else ())
        if answer is not None:
            return answer
        if joined is not None or not complete:
            return self._unfinished(joined, "")
        return self._visit_by_name("") if after else self._empty

    def _repeated(self) -> Claimed | None:
        """The answer to a repeated claim key. None for a new key."""
        for queue in queues_with_key(self._turn, self._command):
            if (answer := self._claim_of(queue).repeated()) is not None:
                return answer
        return None

    def _join(self, after: str) -> tuple[list[QueueRow], str | None]:
        """Create the group in some queues after a name. Returns them, and the name after which to continue."""
        start = self._command.start
        every = start == "new" or (start != "all" and not after)
        queues, more = join(self._turn, self._command, self._progress.since, after, every=every)
        if not more:
            return queues, None
        return queues, queues[-1].name if queues else after

    def _visit_by_name(self, after: str) -> Claimed:
        answer, complete = self._visit(by_name(self._turn, self._command, after))
        if answer is not None:
            return answer
        return self._empty if complete else self._unfinished(None, self._last)

    def _visit(self, queues: Iterable[QueueRow | None]) -> tuple[Claimed | None, bool]:
        """Claim from the first queue that has a message. Returns the answer, and whether no queue is left."""
        for queue in queues:
            if queue is None or not self._budget.visits:
                return None, False
            answer = self._claim_of(queue).run()
            if answer.grants or answer.empty is EmptyReason.ENDED:
                return answer, True
            self._budget.visits -= 1
            self._empty, self._last = _more_informative(self._empty, answer), queue.name
        return None, True

    def _unfinished(self, joined: str | None, visited: str) -> Claimed:
        """The answer of a turn that leaves queues for a later turn."""
        reason, until = self._empty.empty or EmptyReason.EMPTY, self._empty.until
        self._empty.more = ClaimProgress(self._progress.since, joined, visited, reason, until)
        return self._empty


def _more_informative(known: Claimed, other: Claimed) -> Claimed:
    """The empty answer that says more: a reason other than `empty`, then the earlier instant."""
    if known.empty is EmptyReason.EMPTY:
        return other
    if other.until is not None and (known.until is None or other.until < known.until):
        return other
    return known


def join(turn: Turn, command: Claim, since: int, after: str, *, every: bool) -> tuple[list[QueueRow], bool]:
    """Create the group in queues after `after` that lack it: in `every` one, or only in those that hold messages.

    Returns the joined queues, and whether more queues may lack the group.
    """
    budget = turn.state(TagBudget)
    limit = max(1, budget.joins)
    rows = _rows(turn, command, "unjoined", {"all": int(every), "after": after, "limit": limit})
    if not budget.joins:
        return [], bool(rows)
    queues = [catalog.queue_from(row) for row in rows]
    for queue in queues:
        catalog.ensure_group(turn, queue, command.group, command.start, since=since)
    budget.joins -= len(queues)
    return queues, len(queues) == limit


def queues_with_key(turn: Turn, command: Claim) -> list[QueueRow]:
    """Queues in which the group used the claim's key."""
    return [catalog.queue_from(row) for row in _rows(turn, command, "keyed", {"key": command.key})]


def longest_ready(turn: Turn, command: Claim) -> Iterator[QueueRow | None]:
    """Queues in which the group has ready or leased messages, longest ready first. None at the end: there are more."""
    seen: set[int] = set()
    for limit in (FEW, FEW + MOST_FRUITLESS):
        rows = _rows(turn, command, "astir", {"limit": limit})
        for row in rows:
            if row[0] not in seen:
                seen.add(row[0])
                yield catalog.queue_from(row)
        if len(rows) < limit:
            return
    yield None


def by_name(turn: Turn, command: Claim, after: str) -> Iterator[QueueRow | None]:
    """Queues after a name in which the group has ready or leased messages. None at the end: there are more."""
    rows = _rows(turn, command, "astir_behind", {"after": after, "limit": MOST_FRUITLESS})
    yield from map(catalog.queue_from, rows)
    if len(rows) == MOST_FRUITLESS:
        yield None


def _rows(turn: Turn, command: Claim, which: str, more: dict[str, object]) -> list[Row]:
    where = {**more, "grp": command.group, "task": command.task}
    if command.namespace is None:
        return turn.session.rows(f"{which}_of_task", where)
    return turn.session.rows(f"{which}_of_ns", {**where, "ns": command.namespace})
