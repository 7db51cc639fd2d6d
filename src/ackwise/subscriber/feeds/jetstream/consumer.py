"""JetStream pull consumer and its settings."""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from nats.js import api
from nats.js.errors import NotFoundError

from ackwise.core.errors import BadInput
from ackwise.subscriber.feeds.jetstream.errors import refused
from ackwise.subscriber.feeds.jetstream.pull import PullListener, PullRequests
from ackwise.subscriber.subscription import Subscription

if TYPE_CHECKING:
    from ackwise.subscriber.feeds.jetstream.connection import NATSLink


from typing import Any

import msgspec

from ackwise.core.policy import Backoff
from ackwise.core.validation import MICROS, lease_micros
from ackwise.subscriber.subscription import MAX_PENDING

log = logging.getLogger("ackwise.subscriber")


class PullConsumer:
    """A pull consumer: durable if the subscription has a group, else ephemeral.

    An ephemeral consumer gets messages from its start on. If it is deleted, a new one continues after the last message
    seen. The retries of the old one are lost.
    """

    def __init__(self, link: NATSLink, subscription: Subscription, listener: PullListener) -> None:
        self._link, self._subscription, self._listener = link, subscription, listener
        self._pull: PullRequests | None = None
        self._config = api.ConsumerConfig()
        self._name: str | None = None
        self._stream_since: datetime | None = None
        self._seen = 0

    @property
    def pull(self) -> PullRequests:
        assert self._pull is not None
        return self._pull

    async def bind(self) -> None:
        subscription = self._subscription
        stream = await self._link.stream_of(subscription.queue, subscription.stream)
        with refused(self._link.url, f"{subscription.name}: JetStream refused its consumer"):
            info = await (
                self._ephemeral(stream) if subscription.group is None else self._durable(stream, subscription.group)
            )
            pull = PullRequests(self._link.client, stream, info.name, self._listener)
            await pull.open()
        before, self._pull = self._pull, pull
        self._name, self._config = info.name, info.config
        if before is not None:
            await before.close()

    def note(self, sequence: int) -> None:
        """Note that the consumer delivered the message with this sequence number."""
        self._seen = max(self._seen, sequence)

    async def _ephemeral(self, stream: str) -> api.ConsumerInfo:
        js = self._link.js
        if self._name is not None:
            with suppress(NotFoundError):
                existing: api.ConsumerInfo = await js.consumer_info(stream, self._name)
                return existing
        config = new_config(self._subscription, uuid.uuid4().hex)
        since = (await js.stream_info(stream)).created
        if self._stream_since is None:
            config.deliver_policy = api.DeliverPolicy.NEW
        elif self._stream_since == since:
            config.deliver_policy = api.DeliverPolicy.BY_START_SEQUENCE
            config.opt_start_seq = self._seen + 1
        # Otherwise it is another stream of the same name, and all of it is new.
        info = await js.add_consumer(stream, config)
        self._stream_since, self._seen = since, 0 if info.delivered is None else info.delivered.stream_seq
        return info

    async def _durable(self, stream: str, name: str) -> api.ConsumerInfo:
        js, subscription = self._link.js, self._subscription
        try:
            info: api.ConsumerInfo = await js.consumer_info(stream, name)
        except NotFoundError:
            return await js.add_consumer(stream, new_config(subscription, name))
        if info.config.deliver_subject:
            raise BadInput(
                f"{subscription.name}: the consumer {name!r} of stream {stream} is a push consumer; "
                "a subscriber needs a pull consumer"
            )
        await self._check_subjects(stream, info)
        changed = changes(subscription, info.config)
        if changed:
            log.info("%s changes the consumer %r of stream %s: %s", subscription.name, name, stream, changed)
            info = await js.add_consumer(stream, info.config.evolve(**changed))
        return info

    async def _check_subjects(self, stream: str, info: api.ConsumerInfo) -> None:
        subscription = self._subscription
        subjects = subjects_of(info.config, (await self._link.js.stream_info(stream)).config)
        text = f"{subscription.name}: the consumer {info.name!r} of stream {stream} hands out {', '.join(subjects)}"
        if not all(covers(subscription.queue, subject) for subject in subjects):
            raise BadInput(f"{text}, not {subscription.queue}; give this subscriber another durable name")
        if subjects and subscription.queue not in subjects:
            log.warning("%s, which is not all of %s", text, subscription.queue)

    def wait_of(self, attempt: int) -> float | None:
        """Seconds that JetStream waits for the settlement of this delivery attempt. None if it does not wait."""
        config = self._config
        if config.ack_policy == api.AckPolicy.NONE:
            return None
        if config.backoff:
            return config.backoff[min(attempt, len(config.backoff)) - 1]
        return config.ack_wait or ACK_WAIT


ACK_WAIT = 30.0
GONE_AFTER = 60.0
"""Seconds without a pull request after which the server deletes an ephemeral consumer."""
MOST_STEPS = 32
"""Most steps of a backoff that grows without end."""


def new_config(subscription: Subscription, name: str) -> api.ConsumerConfig:
    """The configuration of a new consumer."""
    config = api.ConsumerConfig(name=name, filter_subject=subscription.queue, ack_policy=api.AckPolicy.EXPLICIT)
    if not subscription.acked_first:
        config = config.evolve(ack_wait=ACK_WAIT, max_ack_pending=MAX_PENDING)
    config = config.evolve(**settings_of(subscription, None))
    if subscription.group is None:
        return config.evolve(inactive_threshold=GONE_AFTER)
    return config.evolve(durable_name=name)


def changes(subscription: Subscription, config: api.ConsumerConfig) -> dict[str, Any]:
    """The settings in which an existing consumer differs. Settings that the subscription does not name stay."""
    changed = settings_of(subscription, config.max_deliver)
    if config.backoff and "backoff" not in changed:
        # With a backoff, JetStream's ack wait is the first step.
        changed.pop("ack_wait", None)
    return {name: value for name, value in changed.items() if getattr(config, name) != value}


def settings_of(subscription: Subscription, max_deliver: int | None) -> dict[str, Any]:
    """The subscription's options as JetStream settings."""
    settings: dict[str, Any] = {}
    if subscription.retry_limit is not msgspec.UNSET:
        max_deliver = -1 if subscription.retry_limit is None else max(1, subscription.retry_limit)
        settings["max_deliver"] = max_deliver
    if subscription.acked_first:
        return {**settings, "ack_policy": api.AckPolicy.NONE}
    if subscription.max_pending != MAX_PENDING:
        settings["max_ack_pending"] = subscription.max_pending
    if subscription.lease is not None:
        settings["ack_wait"] = lease_micros(subscription.lease) / MICROS
    if subscription.backoff is not msgspec.UNSET:
        steps = steps_of(subscription.backoff, max_deliver)
        settings["backoff"] = steps or None
        if steps:
            settings["ack_wait"] = steps[0]
    return settings


def steps_of(backoff: Backoff, max_deliver: int | None) -> list[float]:
    """Seconds that JetStream waits for the first settlement, the second, and so on. The last step repeats."""
    # JetStream requires more deliveries than steps.
    most = MOST_STEPS if max_deliver is None or max_deliver < 0 else min(MOST_STEPS, max_deliver - 1)
    steps = [backoff.delay_micros(failures, 0.0) / MICROS for failures in range(1, most + 1)]
    if not any(steps):
        return []
    if not all(steps):
        raise BadInput("a backoff step must be more than 0 seconds: JetStream waits that long for a settlement")
    while len(steps) > 1 and steps[-1] == steps[-2]:
        steps.pop()
    return steps


def subjects_of(config: api.ConsumerConfig, stream: api.StreamConfig) -> list[str]:
    """The subjects of a consumer. Without a filter, those of its stream."""
    if config.filter_subjects:
        return list(config.filter_subjects)
    return [config.filter_subject] if config.filter_subject else list(stream.subjects or [])


def covers(pattern: str, subject: str) -> bool:
    """Whether `pattern` matches everything that `subject` matches."""
    wide, narrow = pattern.split("."), subject.split(".")
    for at, part in enumerate(wide):
        if part == ">":
            return len(narrow) > at
        if at >= len(narrow) or narrow[at] == ">" or (part not in ("*", narrow[at])):
            return False
    return len(wide) == len(narrow)
