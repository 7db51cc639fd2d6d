"""Settles the entries of a call and answers each."""

from __future__ import annotations

from collections.abc import Sequence

from ackwise.core import ids, refusals, rollbacks
from ackwise.core.answers import Settled
from ackwise.core.commands import ByTransaction, Settle, Settlement
from ackwise.core.settlement import Outcome
from ackwise.core.spans import Lease, NumberedRange
from ackwise.engine import ack_runs, rewind
from ackwise.engine.selectors import named_by, resolve_all
from ackwise.engine.span_settlement import Answers, context_of, settle_each
from ackwise.engine.turn import Turn


def settle(turn: Turn, command: Settle) -> list[Settled]:
    """Settle each entry on its own or, with `atomic`, all entries or none.

    Any refusal except `already` undoes an atomic call. With `strict`, an ack of a message that ended without an ack
    undoes it as well.
    """
    if not command.atomic or len(command.entries) == 1:
        # A single entry that is refused has changed nothing.
        return settle_entries(turn, command.entries)
    turn.savepoint()
    answers = settle_entries(turn, command.entries)
    if not any(rollbacks.undoes_settle(answer, strict=command.strict) for answer in answers):
        turn.keep()
        return answers
    turn.undo()
    return rollbacks.rolled_back(answers)


def settle_entries(turn: Turn, entries: Sequence[Settlement]) -> list[Settled]:
    """Settle each entry on its own and answer in the order of the entries."""
    answers: Answers = {}
    ranges = resolve_all(turn, entries, answers)
    others = _settle_rewinding(turn, entries, ranges, answers)
    if len(others) > 1:
        ack_runs.settle_in_runs(turn, entries, others, answers)
    else:
        settle_each(turn, entries, others, answers)
    leases = {leased.lease.no: leased.lease for _, leased in ranges}.values()
    if any(lease.yields for lease in leases):
        _give_back(turn, entries, ranges, answers)
    if any(lease.ended_at is not None for lease in leases):
        _tell_ends(entries, ranges, answers)
    return [answers[number] for number in range(len(entries))]


def _settle_rewinding(
    turn: Turn, entries: Sequence[Settlement], ranges: list[NumberedRange], answers: Answers
) -> list[NumberedRange]:
    """Settle the entries whose failures rewind their lane, and return the others.

    All leases of a group rewind or none, so the two kinds of entries share no messages.
    """
    leases = {leased.lease.grp: leased.lease for _, leased in ranges}
    rewinding = {grp for grp, lease in leases.items() if _rewinds(turn, lease)}
    if not rewinding:
        return ranges
    rewind.settle_lanes(turn, entries, [pair for pair in ranges if pair[1].lease.grp in rewinding], answers)
    return [pair for pair in ranges if pair[1].lease.grp not in rewinding]


def _rewinds(turn: Turn, lease: Lease) -> bool:
    """Whether a failure of one message rewinds its lane."""
    context = context_of(turn, lease)
    return context is not None and context.policy.on_failure == "rewind"


def _give_back(turn: Turn, entries: Sequence[Settlement], ranges: Sequence[NumberedRange], answers: Answers) -> None:
    """Return the rest of a partition after a failure, for leases that were claimed with `yields`."""
    for number, leased in ranges:
        failed = entries[number].outcome is not Outcome.ACK and answers[number].verdict.settled
        if leased.lease.yields and failed and leased.lane is not None and leased.lease.ended_at is None:
            rewind.give_back_partition(turn, leased)


def _tell_ends(entries: Sequence[Settlement], ranges: Sequence[NumberedRange], answers: Answers) -> None:
    """Set `lease_ended` in the answers whose lease has ended when the call ends."""
    leases = dict(ranges)
    for number in refusals.told_ends(ranges, answers):
        answers[number].lease_ended = True
        if type(entries[number].selector) is ByTransaction:
            lease = leases[number].lease
            answers[number].lease_id = ids.lease_id(lease.no, lease.tag)


def settle_again(turn: Turn, entries: Sequence[Settlement]) -> list[Settled]:
    """Settle the entries of a call that may be a repetition.

    A message that the first run returned by a rewind answers `already`.
    """
    answers = settle_entries(turn, entries)
    named = [named_by(turn, entry) for entry in entries]
    ranges = [leased if leased is not None and _rewinds(turn, leased.lease) else None for leased in named]
    return rollbacks.repeated_answers([entry.outcome for entry in entries], ranges, answers)
