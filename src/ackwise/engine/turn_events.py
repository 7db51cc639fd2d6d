"""Builds the events of a committed turn from its counts and answers. Needs no further query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ackwise.core import answers, events
from ackwise.core.errors import AckwiseError
from ackwise.core.events import Event
from ackwise.engine.turn import Turn

_NEVER_REFUSED = frozenset((answers.Receipts, answers.Counted, answers.Claimed))
"""Answers that contain no refusal. A turn with a listener looks at each answer, so the usual ones are quick."""


def events_of(turn: Turn, results: Sequence[answers.Result], seconds: float) -> list[Event]:
    """Each kind of event once per queue and group, then the commit itself. Only dead letters are named one by one."""
    emitted: list[Event] = []
    messages = _add_counted(turn, emitted) + _add_claimed(results, emitted)
    _add_refused(results, emitted)
    for queue, letters in turn.buried:
        emitted += [
            events.DeadLetterAdded(queue, row["grp_name"], row["uuid"], row["reason"], row["error"], row["delivs"])
            for row in letters
        ]
    for (kind, queue), count in turn.noted.items():
        emitted.append(kind(queue, count))
    emitted += turn.reported
    emitted.append(events.TurnCommitted(len(results), messages, seconds))
    return emitted


def _add_counted(turn: Turn, emitted: list[Event]) -> int:
    """Add pushes, settlements and expiries, as the ledger counts them. Returns the number of messages."""
    messages = 0
    pushed: dict[str, list[int]] = {}
    for (queue, group, outcome, _), (count, times) in turn.tally.items():
        if outcome in ("pushed", "duplicate"):
            pushed.setdefault(queue, [0, 0])[outcome == "duplicate"] += count
            messages += count if outcome == "pushed" else 0
        elif outcome == "lease_expired":
            emitted.append(events.LeasesExpired(queue, group, count, turn.expired_leases.get((queue, group), 0)))
            messages += count
        else:
            emitted.append(events.MessagesSettled(queue, group, outcome, count, times))
            messages += count
    for queue, (stored, duplicates) in pushed.items():
        emitted.append(events.MessagesPushed(queue, stored, duplicates))
    return messages


def _add_claimed(results: Sequence[answers.Result], emitted: list[Event]) -> int:
    """Add the messages that claims were granted. Returns their number."""
    counts: dict[tuple[str, str], int] = {}
    for answer in results:
        if type(answer) is answers.Claimed:
            for grant in answer.grants:
                key = (grant.queue, answer.group)
                counts[key] = counts.get(key, 0) + grant.hi - grant.lo
    for (queue, group), count in counts.items():
        emitted.append(events.MessagesClaimed(queue, group, count))
    return sum(counts.values())


def _add_refused(results: Sequence[answers.Result], emitted: list[Event]) -> None:
    """Add commands and settlements that were refused, by their reason."""
    counts: dict[str, int] = {}
    for answer in results:
        if type(answer) not in _NEVER_REFUSED:
            for reason in _refusals(answer):
                counts[reason] = counts.get(reason, 0) + 1
    for reason, count in counts.items():
        emitted.append(events.RequestsRefused(reason, count))


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
