"""What becomes of a delivery when it ends. The only place that says when a failure is final."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ackwise.core import lifecycle
from ackwise.core.lifecycle import Event, Guard, State
from ackwise.core.policy import QueuePolicy


class Outcome(StrEnum):
    """What a consumer asks for."""

    ACK = "ack"
    RETRY = "retry"
    REJECT = "reject"
    RELEASE = "release"


class Verdict(StrEnum):
    """What the engine answers: the first four settled, the last four refused."""

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
        return self in _SETTLED


_SETTLED = frozenset({Verdict.ACKED, Verdict.RETRIED, Verdict.DEAD, Verdict.RELEASED})


class Reason(StrEnum):
    """Why a message is dead."""

    RETRY_LIMIT = "retry_limit"
    DELIVERY_LIMIT = "delivery_limit"
    REJECTED = "rejected"
    MAX_WAIT = "max_wait"
    UNDECODABLE = "undecodable"


class Fate(msgspec.Struct, frozen=True):
    """The decision about one span of equal deliveries."""

    state: State
    failures: int
    due_at: int = 0
    probation: bool = False
    reason: Reason | None = None


class Attempt(msgspec.Struct, frozen=True):
    """What the decision needs to know about the delivery that ends."""

    failures: int
    deliveries: int
    probation: bool
    alone: bool
    bulk: bool


def failure_is_final(policy: QueuePolicy, failures: int) -> bool:
    """Failure number max(1, retry_limit) is final; with `retries` counting, number retry_limit + 1; null: never."""
    if policy.retry_limit is None:
        return False
    last = max(1, policy.retry_limit) if policy.retry_counting == "failures" else policy.retry_limit + 1
    return failures >= last


def on_retry(policy: QueuePolicy, attempt: Attempt, now: int, delay: int | None, roll: float) -> Fate:
    """The consumer failed and said so."""
    failures = attempt.failures + 1
    if failure_is_final(policy, failures):
        return _final(policy, Event.RETRY, failures, Reason.RETRY_LIMIT)
    if _deliveries_spent(policy, attempt):
        return _final(policy, Event.RETRY, failures, Reason.DELIVERY_LIMIT)
    wait = policy.backoff.delay_micros(failures, roll) if delay is None else delay
    state = lifecycle.target(State.LEASED, Event.RETRY, Guard.AGAIN)
    return Fate(state, failures, now + wait, attempt.probation)


def on_expiry(policy: QueuePolicy, attempt: Attempt, now: int, roll: float) -> Fate:
    """The lease ran out or its connection broke. A message is blamed for it only if it was alone."""
    failures = attempt.failures + (1 if policy.expiry_counts else 0)
    if _deliveries_spent(policy, attempt):
        return _final(policy, Event.LEASE_EXPIRY, failures, Reason.DELIVERY_LIMIT)
    limit_reached = policy.expiry_counts and failure_is_final(policy, failures)
    if limit_reached and attempt.alone and not attempt.bulk:
        return _final(policy, Event.LEASE_EXPIRY, failures, Reason.RETRY_LIMIT)
    wait = policy.backoff.delay_micros(failures, roll) if policy.expiry_counts else 0
    state = lifecycle.target(State.LEASED, Event.LEASE_EXPIRY, Guard.AGAIN)
    return Fate(state, failures, now + wait, attempt.probation or limit_reached)


def on_release(policy: QueuePolicy, attempt: Attempt, now: int) -> Fate:
    """Handed back unspent: no failure. At the delivery limit it goes on probation instead of dying."""
    state = lifecycle.target(State.LEASED, Event.RELEASE)
    return Fate(state, attempt.failures, now, attempt.probation or _deliveries_spent(policy, attempt))


def on_reject(policy: QueuePolicy, attempt: Attempt, *, undecodable: bool = False) -> Fate:
    """The consumer says the message can never succeed."""
    guard = Guard.KEPT if policy.dead_letters else Guard.DROPPED
    reason = Reason.UNDECODABLE if undecodable else Reason.REJECTED
    return Fate(lifecycle.target(State.LEASED, Event.REJECT, guard), attempt.failures, reason=reason)


def on_max_wait(policy: QueuePolicy, failures: int) -> Fate:
    """It waited too long to be worth doing."""
    guard = Guard.KEPT if policy.dead_letters else Guard.DROPPED
    return Fate(lifecycle.target(State.READY, Event.MAX_WAIT, guard), failures, reason=Reason.MAX_WAIT)


def _deliveries_spent(policy: QueuePolicy, attempt: Attempt) -> bool:
    limit = policy.effective_delivery_limit
    return limit is not None and attempt.deliveries >= limit


def _final(policy: QueuePolicy, event: Event, failures: int, reason: Reason) -> Fate:
    guard = Guard.FINAL if policy.dead_letters else Guard.FINAL_DROPPED
    return Fate(lifecycle.target(State.LEASED, event, guard), failures, reason=reason)
