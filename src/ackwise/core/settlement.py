"""Fate of a message by its outcome: retry, dead letter, release. Has the exceptions `Retry` and `Reject`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ackwise.core import lifecycle
from ackwise.core.lifecycle import Guard, LifecycleEvent, State
from ackwise.core.policy import QueuePolicy
from ackwise.core.validation import Seconds


class Outcome(StrEnum):
    """Outcome: the settlement that a consumer requests for a message."""

    ACK = "ack"
    RETRY = "retry"
    REJECT = "reject"
    RELEASE = "release"


class Verdict(StrEnum):
    """Verdict: the answer of the engine. The first four verdicts settle, the last four refuse."""

    ACKED = "acked"
    RETRIED = "retried"
    DEAD = "dead"
    RELEASED = "released"
    ALREADY = "already"
    STALE = "stale"
    UNKNOWN = "unknown"
    ROLLED_BACK = "rolled_back"

    @property
    def settled(self) -> bool:
        return self in SETTLING


SETTLED_AS = {
    Outcome.ACK: Verdict.ACKED,
    Outcome.RETRY: Verdict.RETRIED,
    Outcome.REJECT: Verdict.DEAD,
    Outcome.RELEASE: Verdict.RELEASED,
}
"""Verdict of each outcome. A retry that reaches a limit answers `dead` instead."""
RETURNED_AS = {outcome: Verdict.ACKED if outcome is Outcome.ACK else Verdict.RELEASED for outcome in Outcome}
"""Verdict of each outcome for a message that an earlier failure of the same call returned, by rewinding the lane."""
SETTLING = frozenset(SETTLED_AS.values())


class Reason(StrEnum):
    """Why a message is dead."""

    RETRY_LIMIT = "retry_limit"
    DELIVERY_LIMIT = "delivery_limit"
    REJECTED = "rejected"
    MAX_WAIT = "max_wait"
    UNDECODABLE = "undecodable"


class Fate(msgspec.Struct, frozen=True):
    """Decision about the messages of a span: their next state."""

    state: State
    failures: int
    due_at: int = 0
    probation: bool = False
    reason: Reason | None = None


class Attempt(msgspec.Struct, frozen=True):
    """The delivery that ends, as the decision sees it."""

    failures: int
    deliveries: int
    probation: bool
    alone: bool
    bulk: bool


def failure_is_final(policy: QueuePolicy, failures: int) -> bool:
    """Whether this number of failures reaches the retry limit.

    Failure number max(1, retry_limit) is final. If the policy counts `retries`, number retry_limit + 1 is. Without a
    limit no failure is final.
    """
    last = last_failure(policy)
    return last is not None and failures >= last


def last_failure(policy: QueuePolicy) -> int | None:
    """The number of the failure that is final. None without a limit."""
    if policy.retry_limit is None:
        return None
    return max(1, policy.retry_limit) if policy.retry_counting == "failures" else policy.retry_limit + 1


def on_retry(policy: QueuePolicy, attempt: Attempt, now: int, delay: int | None, roll: float) -> Fate:
    """Fate after a failure that the consumer reported."""
    failures = attempt.failures + 1
    if failure_is_final(policy, failures):
        return _final(policy, LifecycleEvent.RETRY, failures, Reason.RETRY_LIMIT)
    if _deliveries_spent(policy, attempt):
        return _final(policy, LifecycleEvent.RETRY, failures, Reason.DELIVERY_LIMIT)
    wait = policy.backoff.delay_micros(failures, roll) if delay is None else delay
    state = lifecycle.target(State.LEASED, LifecycleEvent.RETRY, Guard.AGAIN)
    return Fate(state, failures, now + wait, attempt.probation)


def on_expiry(policy: QueuePolicy, attempt: Attempt, now: int, roll: float) -> Fate:
    """Fate after the lease expired or its connection broke. A message dies for it only if it was alone in its lease."""
    failures = attempt.failures + (1 if policy.expiry_counts else 0)
    if _deliveries_spent(policy, attempt):
        return _final(policy, LifecycleEvent.LEASE_EXPIRY, failures, Reason.DELIVERY_LIMIT)
    limit_reached = policy.expiry_counts and failure_is_final(policy, failures)
    if limit_reached and attempt.alone and not attempt.bulk:
        return _final(policy, LifecycleEvent.LEASE_EXPIRY, failures, Reason.RETRY_LIMIT)
    wait = policy.backoff.delay_micros(failures, roll) if policy.expiry_counts else 0
    state = lifecycle.target(State.LEASED, LifecycleEvent.LEASE_EXPIRY, Guard.AGAIN)
    return Fate(state, failures, now + wait, attempt.probation or limit_reached)


def on_release(policy: QueuePolicy, attempt: Attempt, now: int) -> Fate:
    """Fate after a release, which costs no failure. At the delivery limit the message is put on probation."""
    state = lifecycle.target(State.LEASED, LifecycleEvent.RELEASE)
    return Fate(state, attempt.failures, now, attempt.probation or _deliveries_spent(policy, attempt))


def on_reject(policy: QueuePolicy, attempt: Attempt, *, undecodable: bool = False) -> Fate:
    """Fate after the consumer rejected the message."""
    guard = Guard.KEPT if policy.dead_letters else Guard.DROPPED
    reason = Reason.UNDECODABLE if undecodable else Reason.REJECTED
    return Fate(lifecycle.target(State.LEASED, LifecycleEvent.REJECT, guard), attempt.failures, reason=reason)


def on_max_wait(policy: QueuePolicy, failures: int, state: State = State.READY) -> Fate:
    """Fate of a ready or waiting message that exceeded the queue's max wait."""
    guard = Guard.KEPT if policy.dead_letters else Guard.DROPPED
    return Fate(lifecycle.target(state, LifecycleEvent.MAX_WAIT, guard), failures, reason=Reason.MAX_WAIT)


def _deliveries_spent(policy: QueuePolicy, attempt: Attempt) -> bool:
    limit = policy.effective_delivery_limit
    return limit is not None and attempt.deliveries >= limit


def _final(policy: QueuePolicy, event: LifecycleEvent, failures: int, reason: Reason) -> Fate:
    guard = Guard.FINAL if policy.dead_letters else Guard.FINAL_DROPPED
    return Fate(lifecycle.target(State.LEASED, event, guard), failures, reason=reason)


class Retry(Exception):
    """Raise this to retry a message after `delay` seconds or the queue's backoff. It counts a failure."""

    def __init__(self, *, delay: Seconds | None = None, error: str | BaseException | None = None) -> None:
        super().__init__("retry" if error is None else str(error))
        self.delay = delay
        self.error = error


class Reject(Exception):
    """Raise this to dead-letter a message now, because it can never succeed."""

    def __init__(self, reason: str | BaseException = "rejected") -> None:
        super().__init__(str(reason))
        self.reason = reason
