"""Runs settlements and pushes in one step. Extends leases."""

from __future__ import annotations

from ackwise.core import refusals, rollbacks, validation
from ackwise.core.answers import Extended, Settled, TransactionDone
from ackwise.core.commands import Extend, Transaction
from ackwise.core.errors import AckwiseError, LeaseLost, RolledBack
from ackwise.engine import push, selectors, settle
from ackwise.engine.turn import Turn


def transact(turn: Turn, command: Transaction) -> TransactionDone:
    """Settle and push in one step. An error undoes the whole transaction."""
    turn.savepoint()
    try:
        for text in command.required_leases:
            lease = selectors.find_lease(turn, text)
            if lease is None or not lease.live(turn.now):
                raise LeaseLost(f"rolled back: invalid_lease: the required lease {text} is not held")
        settled = settle.settle_entries(turn, command.settlements)
        _check(command, settled)
        pushed = push.push_now(turn, command.pushes, command.on_duplicate)
    except AckwiseError as problem:
        turn.undo()
        repeated = command.repeatable and isinstance(problem, RolledBack)
        done = _done_before(turn, command) if repeated else None
        if done is None:
            raise
        return done
    turn.keep()
    return TransactionDone(settled, pushed)


def _check(command: Transaction, settled: list[Settled]) -> None:
    """Raise `RolledBack` for the first settlement that undoes the transaction."""
    for index, (entry, answer) in enumerate(zip(command.settlements, settled, strict=True)):
        if rollbacks.undoes_transaction(answer, entry.outcome, command.on_already):
            raise RolledBack(
                f"rolled back: settlement {index} was refused as {answer.verdict.value}",
                index=index,
                verdict=answer.verdict.value,
            )


def _done_before(turn: Turn, command: Transaction) -> TransactionDone | None:
    """The answer to a repeated transaction whose settlements and pushes are all done. None if one is not.

    Changes nothing.
    """
    turn.savepoint()
    try:
        settled = settle.settle_again(turn, command.settlements)
        pushed = push.push_now(turn, command.pushes, "ok")
    finally:
        turn.undo()
    if not rollbacks.done_before(settled):
        return None
    if any(receipt.status != "duplicate" for receipts in pushed for receipt in receipts):
        return None
    return TransactionDone(settled, pushed)


def extend(turn: Turn, command: Extend) -> Extended:
    """Move the deadline of a live lease. Never revives an expired lease."""
    if command.claim is None:
        lease = selectors.find_lease(turn, command.lease_id)
    else:
        lease = selectors.find_claim(turn, command.claim)
    refusal = refusals.refuse_extension(lease, turn.now)
    if refusal is not None:
        return refusal
    assert lease is not None
    deadline = turn.now + command.lease if command.lease is not None else lease.deadline + (command.add or 0)
    if command.keep_later:
        deadline = max(deadline, lease.deadline)
    validation.lease_of(deadline - turn.now)
    lease.deadline = deadline
    turn.memory.note_lease(lease.grp, lease.deadline)
    turn.session.run("lease_deadline", {"no": lease.no, "deadline": lease.deadline})
    return Extended(None, lease.deadline)
