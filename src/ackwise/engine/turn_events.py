"""Builds the events of a committed turn from its counts and answers. Needs no further query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ackwise.core import answers, events
from ackwise.core.errors import AckwiseError
from ackwise.core.events import Event
from ackwise.engine.turn import Tally, Turn

_NEVER_REFUSED = frozenset((answers.Receipts, answers.Counted))
"""Answers that contain no refusal. A turn with a listener looks at each answer, so the usual ones are quick."""


class TurnReport(msgspec.Struct, frozen=True):
    """What a committed turn did, for events that are built later. It keeps neither the turn nor its messages."""

    tally: Tally
    expired_leases: dict[tuple[str, str], int]
    claimed: dict[tuple[str, str], int]
    """Messages that claims were granted, by queue and group."""
    refused: dict[str, int]
    """Commands and settlements that were refused, by their reason."""
    others: list[Event]
    """Dead letters and other events that the turn names one by one."""
    commands: int
    seconds: float

    @property
    def messages(self) -> int:
        """Messages that the turn stored, settled, expired or gave to claims."""
        counted = sum(count for (_, _, outcome, _), (count, _) in self.tally.items() if outcome != "duplicate")
        return counted + sum(self.claimed.values())

    def events(self) -> list[Event]:
        """Each kind of event once per queue and group, then the commit itself. Dead letters are named one by one."""
        built: list[Event] = []
        self._add_counted(built)
        for (queue, group), count in self.claimed.items():
            built.append(events.MessagesClaimed(queue, group, count))
        for reason, count in self.refused.items():
            built.append(events.RequestsRefused(reason, count))
        built += self.others
        built.append(events.TurnCommitted(self.commands, self.messages, self.seconds))
        return built

    def _add_counted(self, built: list[Event]) -> None:
        """Add pushes, settlements and expiries, as the ledger counts them."""
        pushed: dict[str, list[int]] = {}
        for (queue, group, outcome, _), (count, times) in self.tally.items():
            if outcome in ("pushed", "duplicate"):
                pushed.setdefault(queue, [0, 0])[outcome == "duplicate"] += count
            elif outcome == "lease_expired":
                built.append(events.LeasesExpired(queue, group, count, self.expired_leases.get((queue, group), 0)))
            else:
                built.append(events.MessagesSettled(queue, group, outcome, count, times))
        for queue, (stored, duplicates) in pushed.items():
            built.append(events.MessagesPushed(queue, stored, duplicates))


def report_of(turn: Turn, results: Sequence[answers.Result], seconds: float) -> TurnReport:
    claimed: dict[tuple[str, str], int] = {}
    refused: dict[str, int] = {}
    for answer in results:
        if type(answer) is answers.Claimed:
            for grant in answer.grants:
                key = (grant.queue, answer.group)
                claimed[key] = claimed.get(key, 0) + grant.hi - grant.lo
        elif type(answer) not in _NEVER_REFUSED:
            for reason in _refusals(answer):
                refused[reason] = refused.get(reason, 0) + 1
    others = list(_named(turn)) if turn.buried or turn.noted or turn.reported else turn.reported
    return TurnReport(turn.tally, turn.expired_leases, claimed, refused, others, len(results), seconds)


def _named(turn: Turn) -> Iterable[Event]:
    for queue, letters in turn.buried:
        for row in letters:
            yield events.DeadLetterAdded(
                queue, row["grp_name"], row["uuid"], row["reason"], row["error"], row["delivs"]
            )
    for (kind, queue), count in turn.noted.items():
        yield kind(queue, count)
    yield from turn.reported


def _refusals(answer: answers.Result) -> Iterable[str]:
    if isinstance(answer, AckwiseError):
        return (answer.code,)
    if isinstance(answer, answers.Extended):
        return () if answer.verdict is None else (answer.verdict.value,)
    if isinstance(answer, answers.TransactionDone):
        answer = answer.settled
    if isinstance(answer, list) and answer and isinstance(answer[0], answers.Settled):
        return [settled.verdict.value for settled in answer if not settled.verdict.settled]
    return ()
