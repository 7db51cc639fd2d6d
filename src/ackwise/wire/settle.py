"""Native settle, extend, release and transaction bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ackwise.core import validation
from ackwise.core.answers import Extended, Settled
from ackwise.core.commands import ByDelivery, ByKey, ByLease, Extend, Selector, Settle, Settlement, Transaction
from ackwise.core.errors import BadInput, LeaseLost
from ackwise.core.messages import Receipt
from ackwise.core.settlement import Outcome, Verdict
from ackwise.wire import push, timestamps

MOST_EXTENSIONS = 1000


class Entry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One settlement of a delivery, of a whole lease, or of the messages of a selector."""

    outcome: Outcome
    delivery_id: str | None = None
    lease_id: str | None = None
    selector: Selector | None = None
    delay_seconds: float | None = None
    error: str | None = None
    error_type: str | None = None
    trace: str | None = None
    undecodable: bool = False


class SettleBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Request body of a settle call. `detail` answers with `Settled` instead of the verdict alone."""

    entries: list[Entry]
    atomic: bool = False
    detail: bool = False
    strict: bool = False


class ExtendBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Request body that extends a lease: `lease_seconds` from now, or `add_seconds` beyond its deadline.

    `claim` names the lease by its claim key instead of its id.
    """

    lease_id: str = ""
    lease_seconds: float | None = None
    add_seconds: float | None = None
    keep_later: bool = False
    claim: ByKey | None = None


class ExtendAllBody(msgspec.Struct, forbid_unknown_fields=True):
    """Request body that extends several leases, each an `ExtendBody`. The server answers each on its own."""

    extensions: list[msgspec.Raw]


class ReleaseBody(msgspec.Struct, forbid_unknown_fields=True):
    lease_id: str


class TransactionBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    settlements: list[Entry] = []
    pushes: list[push.PushBody] = []
    required_leases: tuple[str, ...] = ()
    on_duplicate: Literal["ok", "fail"] = "ok"
    on_already: Literal["ok", "acks", "fail"] = "ok"
    repeatable: bool = False
    detail: bool = False


class DeliveryVerdict(msgspec.Struct):
    delivery_id: str
    verdict: Verdict


class LeaseVerdict(msgspec.Struct):
    lease_id: str
    verdict: Verdict


class SelectorVerdict(msgspec.Struct):
    selector: Selector
    verdict: Verdict


class DetailedVerdicts(msgspec.Struct):
    """Answer with `detail`, in the order of the entries."""

    verdicts: list[Settled]


class DetailedTransaction(msgspec.Struct):
    """Answer to a transaction with `detail`: settlements, and the receipts of each push."""

    verdicts: list[Settled]
    receipts: list[list[Receipt]]


class Deadline(msgspec.Struct):
    """Answer to an extension."""

    lease_id: str
    deadline: str


class ExtensionVerdict(msgspec.Struct, omit_defaults=True):
    """Answer to one of several extensions: the new deadline, a verdict, or the error of an invalid request."""

    lease_id: str
    deadline: str | None
    verdict: Verdict | None
    by_settling: bool = False
    error: str | None = None


class ExtensionVerdicts(msgspec.Struct):
    """Answer to `ExtendAllBody`: one verdict per extension, in the order of the request."""

    extensions: list[ExtensionVerdict]


def settlement(entry: Entry) -> Settlement:
    delay = None if entry.delay_seconds is None else validation.micros(entry.delay_seconds, "delay_seconds")
    return Settlement(
        selector=_selector(entry),
        outcome=entry.outcome,
        delay=delay,
        error=entry.error,
        error_type=entry.error_type,
        trace=entry.trace,
        undecodable=entry.undecodable,
    )


def _selector(entry: Entry) -> Selector:
    if (entry.delivery_id is not None) + (entry.lease_id is not None) + (entry.selector is not None) != 1:
        raise BadInput("a settlement names one of delivery_id, lease_id and selector")
    if entry.delivery_id is not None:
        return ByDelivery(entry.delivery_id)
    if entry.lease_id is not None:
        return ByLease(entry.lease_id)
    assert entry.selector is not None
    return entry.selector


def entry(settlement: Settlement) -> Entry:
    """The wire form of a settlement."""
    named = settlement.selector
    return Entry(
        outcome=settlement.outcome,
        delivery_id=named.delivery_id if isinstance(named, ByDelivery) else None,
        selector=None if isinstance(named, ByDelivery) else named,
        delay_seconds=None if settlement.delay is None else settlement.delay / validation.MICROS,
        error=settlement.error,
        error_type=settlement.error_type,
        trace=settlement.trace,
        undecodable=settlement.undecodable,
    )


def settle(body: SettleBody) -> Settle:
    return Settle(entries=[settlement(entry) for entry in body.entries], atomic=body.atomic, strict=body.strict)


def settle_body(command: Settle) -> SettleBody:
    entries = [entry(settlement) for settlement in command.entries]
    return SettleBody(entries, command.atomic, detail=True, strict=command.strict)


def verdicts(
    entries: Sequence[Entry], answers: Sequence[Settled], *, detail: bool
) -> Sequence[Settled | DeliveryVerdict | LeaseVerdict | SelectorVerdict]:
    """Verdicts in the order of the entries."""
    if detail:
        return answers
    return [_verdict(entry, answer.verdict) for entry, answer in zip(entries, answers, strict=True)]


def _verdict(entry: Entry, verdict: Verdict) -> DeliveryVerdict | LeaseVerdict | SelectorVerdict:
    if entry.delivery_id is not None:
        return DeliveryVerdict(entry.delivery_id, verdict)
    if entry.lease_id is not None:
        return LeaseVerdict(entry.lease_id, verdict)
    assert entry.selector is not None
    return SelectorVerdict(entry.selector, verdict)


def extend(body: ExtendBody) -> Extend:
    if bool(body.lease_id) == (body.claim is not None):
        raise BadInput("an extension names one of lease_id and claim")
    return Extend(
        lease_id=body.lease_id,
        lease=None if body.lease_seconds is None else validation.lease_micros(body.lease_seconds),
        add=None if body.add_seconds is None else validation.lease_micros(body.add_seconds),
        keep_later=body.keep_later,
        claim=body.claim,
    )


def extend_body(command: Extend) -> ExtendBody:
    return ExtendBody(
        command.lease_id,
        None if command.lease is None else command.lease / validation.MICROS,
        None if command.add is None else command.add / validation.MICROS,
        command.keep_later,
        command.claim,
    )


def extension_verdict(lease_id: str, extended: Extended | BadInput) -> ExtensionVerdict:
    if isinstance(extended, BadInput):
        return ExtensionVerdict(lease_id, None, None, error=str(extended))
    deadline = None if extended.deadline is None else timestamps.text(extended.deadline)
    return ExtensionVerdict(lease_id, deadline, extended.verdict, extended.by_settling)


def not_extended(extended: Extended) -> LeaseLost:
    how = extended.verdict.value if extended.verdict else "gone"
    more = {"by_settling": True} if extended.by_settling else {}
    return LeaseLost(f"invalid_lease: the lease is no longer held ({how}) and cannot be extended", verdict=how, **more)


def extended(answer: ExtensionVerdict) -> Extended | BadInput:
    if answer.error is not None:
        return BadInput(answer.error)
    deadline = None if answer.deadline is None else timestamps.parse(answer.deadline, "deadline")
    return Extended(answer.verdict, deadline, answer.by_settling)


def transaction(body: TransactionBody) -> Transaction:
    return Transaction(
        settlements=[settlement(entry) for entry in body.settlements],
        pushes=[push.command(push_body) for push_body in body.pushes],
        required_leases=body.required_leases,
        on_duplicate=body.on_duplicate,
        on_already=body.on_already,
        repeatable=body.repeatable,
    )


def transaction_body(command: Transaction) -> TransactionBody:
    return TransactionBody(
        [entry(settlement) for settlement in command.settlements],
        [push.body(push_command) for push_command in command.pushes],
        tuple(command.required_leases),
        command.on_duplicate,
        command.on_already,
        command.repeatable,
        detail=True,
    )
