"""Converts outcomes to settlements and refusals to errors. Tracks held leases."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterable, Sequence
from typing import Protocol

from ackwise.core import ids, validation
from ackwise.core.answers import Claimed, Extended, Settled
from ackwise.core.commands import ByDelivery, ByLease, Selector, Settle, Settlement, release_command
from ackwise.core.errors import AckwiseError, BadInput, LeaseLost, MessageNotFound, RolledBack
from ackwise.core.settlement import Outcome, Reject, Retry, Verdict
from ackwise.core.validation import Seconds
from ackwise.wire.settle import not_extended

TRACED_CALLS = 5
"""Stack frames that a failure's traceback keeps."""


class Settleable(Protocol):
    """A delivery or a batch: an object that can be settled."""

    @property
    def selector(self) -> Selector: ...

    def note(self, answer: Settled) -> None: ...


Target = Settleable | Selector | str
Ask = Outcome | str | Exception
"""An outcome, its name, or an exception. An exception other than `Retry` and `Reject` means a retry."""
Entry = Settlement | tuple[Target, Ask]


def selector_of(target: Target) -> Selector:
    """The selector of a delivery, a batch, or the id of either."""
    if isinstance(target, str):
        return ByLease(target) if ids.parse_lease_id(target) else ByDelivery(target)
    if isinstance(target, Selector):
        return target
    return target.selector


def lease_of(selector: Selector) -> str | None:
    """The lease id in a selector. None if the selector has none."""
    text = selector.delivery_id if isinstance(selector, ByDelivery) else getattr(selector, "lease_id", None)
    return text.partition(".")[0] if isinstance(text, str) else None


def as_settlement(entry: Entry) -> Settlement:
    """The settlement of an entry: a settlement or a pair (target, outcome)."""
    if isinstance(entry, Settlement):
        return entry
    try:
        target, ask = entry
        return settlement_for(selector_of(target), ask)
    except (TypeError, ValueError, AttributeError) as problem:
        if isinstance(problem, AckwiseError):
            raise
        raise BadInput(f"a settlement is (delivery, outcome), not {entry!r}") from None


def settlement_for(selector: Selector, ask: Ask) -> Settlement:
    """The settlement that an outcome or an exception means."""
    match ask:
        case Retry():
            return retry(selector, ask.delay, ask.error or ask.__cause__)
        case Reject():
            return reject(selector, ask.reason)
        case Exception():
            return retry(selector, None, ask)
        case _ if ask in Outcome.__members__.values():
            return Settlement(selector=selector, outcome=Outcome(ask))
        case _:
            raise BadInput(f"outcome must be one of ack, retry, reject, release, or an exception, not {ask!r}")


def retry(selector: Selector, delay: Seconds | None, error: str | BaseException | None) -> Settlement:
    wait = None if delay is None else validation.micros(delay, "delay")
    text, kind = _error_text(error)
    return Settlement(
        selector=selector, outcome=Outcome.RETRY, delay=wait, error=text, error_type=kind, trace=_trace_of(error)
    )


def reject(selector: Selector, reason: str | BaseException | None) -> Settlement:
    text, kind = _error_text(reason)
    return Settlement(selector=selector, outcome=Outcome.REJECT, error=text, error_type=kind, trace=_trace_of(reason))


def at_exit(selector: Selector, problem: BaseException | None) -> Settlement:
    """The settlement at the end of a `with` block: ack, retry after an exception, release after an interrupt."""
    match problem:
        case None:
            return Settlement(selector=selector, outcome=Outcome.ACK)
        case Exception():
            return settlement_for(selector, problem)
        case _:
            return Settlement(selector=selector, outcome=Outcome.RELEASE)


def _trace_of(error: str | BaseException | None) -> str | None:
    """The innermost frames of an exception's traceback, as text."""
    if not isinstance(error, BaseException) or error.__traceback__ is None:
        return None
    lines = "".join(traceback.format_tb(error.__traceback__, -TRACED_CALLS))
    return validation.text(lines[-validation.LONGEST_TRACE :], "trace", validation.LONGEST_TRACE)


def _error_text(error: str | BaseException | None) -> tuple[str | None, str | None]:
    """The text and the type name of an error."""
    if isinstance(error, BaseException):
        return validation.text(str(error), "error", validation.LONGEST_ERROR), type(error).__qualname__
    return (None if error is None else validation.text(error, "error", validation.LONGEST_ERROR)), None


def verdict_of(answer: Settled) -> Verdict:
    """The verdict of a successful settlement, also `already` with the same outcome. Raises a refusal's error."""
    match answer.verdict:
        case Verdict.ALREADY if answer.unacked:
            raise LeaseLost(
                "invalid_lease: this delivery ended before and is not acked; the message comes again or is dead",
                verdict=answer.verdict.value,
            )
        case Verdict.STALE:
            raise LeaseLost(verdict=answer.verdict.value)
        case Verdict.UNKNOWN:
            raise MessageNotFound(verdict=answer.verdict.value)
        case Verdict.ROLLED_BACK:
            raise RolledBack(verdict=answer.verdict.value)
        case verdict:
            return verdict


_CAUSES = {Verdict.STALE: "invalid_lease", Verdict.UNKNOWN: "not_found"}


def all_settled(answers: list[Settled]) -> list[Settled]:
    """The answers to an atomic, strict call. Raises `RolledBack` with the first refused entry, if there is one."""
    verdicts = [answer.verdict.value for answer in answers]
    for index, answer in enumerate(answers):
        cause = _CAUSES.get(answer.verdict) or ("invalid_lease: it ended before" if answer.unacked else None)
        if cause is not None:
            why = f"rolled back: nothing was settled, because entry {index} was refused: {cause}"
            raise RolledBack(why, index=index, verdict=answer.verdict.value, verdicts=verdicts)
    return answers


def is_settled(problem: LeaseLost) -> bool:
    """Whether a failed extension means that all messages of the lease are settled."""
    return problem.details.get("verdict") == Verdict.ALREADY or "by_settling" in problem.details


def deadline_of(answer: Extended) -> int:
    """The new deadline of an extended lease. Raises if the lease was not extended."""
    if answer.deadline is None:
        raise not_extended(answer)
    return answer.deadline


class SettlementListener(Protocol):
    """Receives the answers to settlements."""

    def note(self, selector: Selector, answer: Settled) -> None: ...


def note_all(
    held: SettlementListener, targets: Sequence[Target], entries: Sequence[Settlement], answers: Sequence[Settled]
) -> None:
    """Pass each answer to `held`, and to the delivery or batch that the caller settled."""
    for target, entry, answer in zip(targets, entries, answers, strict=True):
        held.note(entry.selector, answer)
        if not isinstance(target, str | Selector):
            target.note(answer)


_TIDY_AT = 1024
_GONE = (Verdict.ALREADY, Verdict.STALE, Verdict.UNKNOWN)


class HeldLeases:
    """The leases that a connection holds, with their deadlines. Thread-safe: each step is one operation of a dict."""

    def __init__(self) -> None:
        self._deadlines: dict[str, int] = {}
        self._being_settled: dict[str, int] = {}
        """Leases with settlements in flight, and the number of calls for each."""
        self._guard = threading.Lock()
        self._tidy_at = _TIDY_AT

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, claimed: Claimed, now: int) -> None:
        """Add the lease of a claim that has one.

        Drops expired leases each time that the number of leases has doubled, from 1024 on.
        """
        self._deadlines[ids.lease_id(claimed.lease_no, claimed.tag)] = claimed.deadline
        if len(self._deadlines) >= self._tidy_at:
            for lease_id, deadline in list(self._deadlines.items()):
                if deadline <= now:
                    self.drop(lease_id)
            self._tidy_at = max(_TIDY_AT, 2 * len(self._deadlines))

    def live(self, now: int) -> int:
        """Count the leases that have not expired."""
        return sum(deadline > now for deadline in list(self._deadlines.values()))

    def extended(self, lease_id: str, deadline: int, *, keep_later: bool = False) -> None:
        """Note a new deadline. With `keep_later` a late answer does not replace a later deadline."""
        known = self._deadlines.get(lease_id)
        if known is not None:
            self._deadlines[lease_id] = max(known, deadline) if keep_later else deadline

    def drop(self, lease_id: str) -> None:
        self._deadlines.pop(lease_id, None)

    def begin_settling(self, entries: Iterable[Settlement]) -> set[str]:
        """Note that a call settles these entries. Pass the returned leases to `end_settling` after the answer."""
        leases = {lease for entry in entries if (lease := lease_of(entry.selector)) is not None}
        with self._guard:
            for lease in leases:
                self._being_settled[lease] = self._being_settled.get(lease, 0) + 1
        return leases

    def end_settling(self, leases: set[str], selector: Selector | None = None, answer: Settled | None = None) -> None:
        """Note that a call has ended. The answer to its single settlement may end the lease."""
        with self._guard:
            for lease in leases:
                self._being_settled[lease] -= 1
                if not self._being_settled[lease]:
                    del self._being_settled[lease]
        if selector is not None and answer is not None:
            self.note(selector, answer)

    def is_being_settled(self, lease_id: str) -> bool:
        return lease_id in self._being_settled

    def note(self, selector: Selector, answer: Settled) -> None:
        """Drop the lease if the settlement ended it or was refused because the lease is gone."""
        if answer.lease_ended or (isinstance(selector, ByLease) and answer.verdict in _GONE):
            lease_id = lease_of(selector) or answer.lease_id
            if lease_id is not None:
                self.drop(lease_id)

    def release(self) -> Settle | None:
        """Drop all leases and return the command that releases them. None if none is held."""
        ids, self._deadlines = list(self._deadlines), {}
        return release_command(ids) if ids else None
