"""Ack and push in one step, and moving a lease's deadline."""

from __future__ import annotations

from ackwise.core import limits
from ackwise.core.answers import Extended, Settled, TransactionDone
from ackwise.core.commands import Extend, Transaction
from ackwise.core.errors import AckwiseError, BadInput, LeaseLost, RolledBack
from ackwise.core.settlement import Outcome, Verdict
from ackwise.store.turn import push, settle
from ackwise.store.turn.checks import Checked, check_push
from ackwise.store.turn.context import Turn
from ackwise.store.turn.ending import ended_by_settling


def transact(turn: Turn, command: Transaction) -> TransactionDone:
    """All of it or, by an error that says why, none of it."""
    for entry in command.settlements:
        settle.check_entry(entry)
    pushes = [check_push(one) for one in command.pushes]
    turn.savepoint()
    try:
        for text in command.required_leases:
            lease = settle.find_lease(turn, text)
            if lease is None or not lease.live(turn.now):
                raise LeaseLost(f"rolled back: invalid_lease: the required lease {text} is not held")
        settled = settle.settle_entries(turn, command.settlements)
        for index, answer in enumerate(settled):
            if settle.refused(answer) or _too_late(command, index, answer):
                raise RolledBack(
                    f"rolled back: settlement {index} was refused as {answer.verdict.value}",
                    index=index,
                    verdict=answer.verdict.value,
                )
        pushed = push.push_now(turn, pushes, command.on_duplicate)
    except AckwiseError as problem:
        turn.undo()
        repeated = command.repeatable and isinstance(problem, RolledBack)
        done = _done_before(turn, command, pushes) if repeated else None
        if done is None:
            raise
        return done
    turn.keep()
    return TransactionDone(settled, pushed)


def _done_before(turn: Turn, command: Transaction, pushes: list[Checked]) -> TransactionDone | None:
    """What is said about a transaction that finds all of itself done; None when it does not. Changes nothing."""
    turn.savepoint()
    try:
        settled = settle.settle_entries(turn, command.settlements)
        for index in settle.went_along(turn, command.settlements, settled):
            settled[index] = Settled(Verdict.ALREADY)
        pushed = push.push_now(turn, pushes, "ok")
    finally:
        turn.undo()
    if any(answer.verdict is not Verdict.ALREADY or answer.unacked for answer in settled):
        return None
    if any(receipt.status != "duplicate" for receipts in pushed for receipt in receipts):
        return None
    return TransactionDone(settled, pushed)


def _too_late(command: Transaction, index: int, answer: Settled) -> bool:
    """Whether something was settled before that this transaction wanted to settle itself."""
    if answer.unacked and command.on_already != "acks":
        return True
    if answer.verdict is not Verdict.ALREADY or command.on_already == "ok":
        return False
    return command.on_already == "fail" or command.settlements[index].outcome is not Outcome.ACK


def extend(turn: Turn, command: Extend) -> Extended:
    """A new deadline for a lease that is still held; an expired one is never revived."""
    if (command.lease is None) == (command.add is None):
        raise BadInput("extend takes a lease time, or how much to add")
    if command.lease is not None:
        limits.lease_of(command.lease)
    if command.add is not None:
        limits.lease_of(command.add)
    if command.claim is None:
        lease = settle.find_lease(turn, command.lease_id)
    else:
        settle.check_key(command.claim)
        lease = settle.find_claim(turn, command.claim)
    if lease is None:
        return Extended(Verdict.UNKNOWN, None)
    if not lease.live(turn.now):
        settled = ended_by_settling(lease) and not lease.lost
        # One that ended before schema 5 did not note what it gave back, and says `already`.
        return Extended(Verdict.ALREADY if settled and not lease.returned else Verdict.STALE, None, settled)
    deadline = turn.now + command.lease if command.lease is not None else lease.deadline + (command.add or 0)
    if command.keep_later:
        deadline = max(deadline, lease.deadline)
    limits.lease_of(deadline - turn.now)
    lease.deadline = deadline
    turn.session.run("lease_deadline", {"no": lease.no, "deadline": lease.deadline})
    return Extended(None, lease.deadline)
