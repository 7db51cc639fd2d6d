"""What a subscription asks of its consumer."""

from __future__ import annotations

from typing import Any

import msgspec
from nats.js import api

from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS, lease_micros
from ackwise.core.policy import Backoff
from ackwise.subscriber.subscription import MAX_PENDING, Subscription

ACK_WAIT = 30.0
GONE_AFTER = 60.0
"""An ephemeral consumer is forgotten by the server when nobody asked for so long."""
MOST_STEPS = 32
"""Of a backoff that grows for ever."""


def fresh(subscription: Subscription, name: str) -> api.ConsumerConfig:
    """For a consumer that is not there yet."""
    config = api.ConsumerConfig(name=name, filter_subject=subscription.queue, ack_policy=api.AckPolicy.EXPLICIT)
    if not subscription.acked_first:
        config = config.evolve(ack_wait=ACK_WAIT, max_ack_pending=MAX_PENDING)
    config = config.evolve(**said(subscription, None))
    if subscription.group is None:
        return config.evolve(inactive_threshold=GONE_AFTER)
    return config.evolve(durable_name=name)


def changes(subscription: Subscription, config: api.ConsumerConfig) -> dict[str, Any]:
    """What the subscription says otherwise than a consumer that is there. What it does not say is the operator's."""
    wanted = said(subscription, config.max_deliver)
    if config.backoff and "backoff" not in wanted:
        # JetStream's ack wait is its first step.
        wanted.pop("ack_wait", None)
    return {name: value for name, value in wanted.items() if getattr(config, name) != value}


def said(subscription: Subscription, max_deliver: int | None) -> dict[str, Any]:
    """What it says itself, in the words of JetStream."""
    words: dict[str, Any] = {}
    if subscription.retry_limit is not msgspec.UNSET:
        max_deliver = -1 if subscription.retry_limit is None else max(1, subscription.retry_limit)
        words["max_deliver"] = max_deliver
    if subscription.acked_first:
        return {**words, "ack_policy": api.AckPolicy.NONE}
    if subscription.max_pending != MAX_PENDING:
        words["max_ack_pending"] = subscription.max_pending
    if subscription.lease is not None:
        words["ack_wait"] = lease_micros(subscription.lease) / MICROS
    if subscription.backoff is not msgspec.UNSET:
        steps = steps_of(subscription.backoff, max_deliver)
        words["backoff"] = steps or None
        if steps:
            words["ack_wait"] = steps[0]
    return words


def steps_of(backoff: Backoff, max_deliver: int | None) -> list[float]:
    """How long JetStream waits for the first settlement, the second, and so on; the last repeats."""
    # JetStream wants more deliveries than steps.
    most = MOST_STEPS if max_deliver is None or max_deliver < 0 else min(MOST_STEPS, max_deliver - 1)
    steps = [backoff.delay_micros(failures, 0.0) / MICROS for failures in range(1, most + 1)]
    if not any(steps):
        return []
    if not all(steps):
        raise BadInput("a step of 0 seconds: JetStream's backoff is how long it waits for a settlement")
    while len(steps) > 1 and steps[-1] == steps[-2]:
        steps.pop()
    return steps


def handed_out(config: api.ConsumerConfig, stream: api.StreamConfig) -> list[str]:
    """The subjects of a consumer; without a filter all of its stream."""
    if config.filter_subjects:
        return list(config.filter_subjects)
    return [config.filter_subject] if config.filter_subject else list(stream.subjects or [])


def covers(pattern: str, subject: str) -> bool:
    """Whether whatever the second matches is matched by the first."""
    wide, narrow = pattern.split("."), subject.split(".")
    for at, part in enumerate(wide):
        if part == ">":
            return len(narrow) > at
        if at >= len(narrow) or narrow[at] == ">" or (part not in ("*", narrow[at])):
            return False
    return len(wide) == len(narrow)
