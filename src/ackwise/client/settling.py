"""How an outcome is asked for, and what a refusal becomes."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Protocol

from ackwise.core import ids, limits
from ackwise.core.answers import Extended, Settled
from ackwise.core.commands import ByDelivery, ByLease, Selector, Settlement
from ackwise.core.errors import AckwiseError, BadInput, LeaseLost, MessageNotFound, RolledBack
from ackwise.core.limits import Seconds
from ackwise.core.native.settling import not_extended
from ackwise.core.outcomes import Reject, Retry
from ackwise.core.settlement import Outcome, Verdict

TRACED_CALLS = 5


class Settleable(Protocol):
    """A delivery, or a batch for everything it still holds."""

    @property
    def selector(self) -> Selector: ...

    def note(self, answer: Settled) -> None: ...


Target = Settleable | Selector | str
Ask = Outcome | str | Exception
"""An outcome by name, or what a handler raised: `Retry`, `Reject`, or any other exception, which is a retry."""
Entry = Settlement | tuple[Target, Ask]


def selector_of(target: Target) -> Selector:
    """What a delivery, a batch, or the id of either names."""
    if isinstance(target, str):
        return ByLease(target) if ids.parse_lease_id(target) else ByDelivery(target)
    if isinstance(target, Selector):
        return target
    return target.selector


def lease_of(selector: Selector) -> str | None:
    """The lease a selector names, where it names one."""
    named = selector.delivery_id if isinstance(selector, ByDelivery) else getattr(selector, "lease_id", None)
    return named.partition(".")[0] if isinstance(named, str) else None


def entry(given: Entry) -> Settlement:
    """A settlement, from itself or from (what, outcome)."""
    if isinstance(given, Settlement):
        return given
    try:
        target, ask = given
        return asked(selector_of(target), ask)
    except (TypeError, ValueError, AttributeError) as problem:
        if isinstance(problem, AckwiseError):
            raise
        raise BadInput(f"a settlement is (delivery, outcome), not {given!r}") from None


def asked(selector: Selector, ask: Ask) -> Settlement:
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
    wait = None if delay is None else limits.micros(delay, "delay")
    text, kind = _told(error)
    return Settlement(
        selector=selector, outcome=Outcome.RETRY, delay=wait, error=text, error_type=kind, trace=_traced(error)
    )


def reject(selector: Selector, reason: str | BaseException | None) -> Settlement:
    text, kind = _told(reason)
    return Settlement(selector=selector, outcome=Outcome.REJECT, error=text, error_type=kind, trace=_traced(reason))


def at_exit(selector: Selector, problem: BaseException | None) -> Settlement:
    """What leaving a `with` block means: done is an ack, an exception a retry, an interruption costs nothing."""
    match problem:
        case None:
            return Settlement(selector=selector, outcome=Outcome.ACK)
        case Exception():
            return asked(selector, problem)
        case _:
            return Settlement(selector=selector, outcome=Outcome.RELEASE)


def _traced(error: str | BaseException | None) -> str | None:
    """Where it was raised, innermost last."""
    if not isinstance(error, BaseException) or error.__traceback__ is None:
        return None
    lines = "".join(traceback.format_tb(error.__traceback__, -TRACED_CALLS))
    return limits.text(lines[-limits.LONGEST_TRACE :], "trace", limits.LONGEST_TRACE)


def _told(error: str | BaseException | None) -> tuple[str | None, str | None]:
    if isinstance(error, BaseException):
        return limits.text(str(error), "error", limits.LONGEST_ERROR), type(error).__qualname__
    return (None if error is None else limits.text(error, "error", limits.LONGEST_ERROR)), None


def verdict_of(answer: Settled) -> Verdict:
    """The verdict when it settled (now, or before in the way that is asked for now); a refusal is raised."""
    match answer.verdict:
        case Verdict.ALREADY if answer.unacked:
            raise LeaseLost(
                "invalid_lease: this delivery ended before, and the message is not acked: it comes again or is dead",
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


_WORDS = {Verdict.STALE: "invalid_lease", Verdict.UNKNOWN: "not_found"}


def all_settled(answers: list[Settled]) -> list[Settled]:
    """The answers to an atomic and strict call when all of it is done; else it is raised which entry was refused."""
    verdicts = [answer.verdict.value for answer in answers]
    for index, answer in enumerate(answers):
        word = _WORDS.get(answer.verdict) or ("invalid_lease: it ended before" if answer.unacked else None)
        if word is not None:
            why = f"rolled back: nothing was settled, because entry {index} was refused: {word}"
            raise RolledBack(why, index=index, verdict=answer.verdict.value, verdicts=verdicts)
    return answers


def is_settled(problem: LeaseLost) -> bool:
    """Whether a lease cannot be extended because its messages were settled: nothing is left to lose."""
    return problem.details.get("verdict") == Verdict.ALREADY or "by_settling" in problem.details


def deadline_of(answer: Extended) -> int:
    """The new deadline; a lease that is gone is raised."""
    if answer.deadline is None:
        raise not_extended(answer)
    return answer.deadline


class Noting(Protocol):
    """Somebody who wants to know which leases ended."""

    def note(self, selector: Selector, answer: Settled) -> None: ...


def note_all(
    held: Noting, targets: Sequence[Target], entries: Sequence[Settlement], answers: Sequence[Settled]
) -> None:
    """Tell the leases, and the deliveries and batches in somebody's hand, what became of them."""
    for target, one, answer in zip(targets, entries, answers, strict=True):
        held.note(one.selector, answer)
        if not isinstance(target, str | Selector):
            target.note(answer)
