"""The pull consumer of one subscription: found or made, and made again when it is gone."""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from nats.js import api
from nats.js.errors import NotFoundError

from ackwise.core.errors import BadInput
from ackwise.subscriber.feeds.jetstream import settings
from ackwise.subscriber.feeds.jetstream.pull import Asker, Pull
from ackwise.subscriber.feeds.jetstream.trouble import refused
from ackwise.subscriber.subscription import Subscription

if TYPE_CHECKING:
    from ackwise.subscriber.feeds.jetstream.link import NATSLink

log = logging.getLogger("ackwise.subscriber")


class PullConsumer:
    """Durable where the subscription names it, else ephemeral: that one gets what is new since its start.

    When an ephemeral one is gone, the next goes on behind the last message seen; what waited to be tried again went
    with it.
    """

    def __init__(self, link: NATSLink, subscription: Subscription, asker: Asker) -> None:
        self._link, self._subscription, self._asker = link, subscription, asker
        self._pull: Pull | None = None
        self._config = api.ConsumerConfig()
        self._name: str | None = None
        self._stream_since: datetime | None = None
        self._seen = 0

    @property
    def pull(self) -> Pull:
        assert self._pull is not None
        return self._pull

    async def bind(self) -> None:
        given = self._subscription
        stream = await self._link.stream_of(given.queue, given.stream)
        with refused(self._link.url, f"{given.name}: JetStream refused its consumer"):
            info = await (self._ephemeral(stream) if given.group is None else self._durable(stream, given.group))
            pull = Pull(self._link.client, stream, info.name, self._asker)
            await pull.open()
        before, self._pull = self._pull, pull
        self._name, self._config = info.name, info.config
        if before is not None:
            await before.close()

    def note(self, sequence: int) -> None:
        """It handed out that message of its stream."""
        self._seen = max(self._seen, sequence)

    async def _ephemeral(self, stream: str) -> api.ConsumerInfo:
        js = self._link.js
        if self._name is not None:
            with suppress(NotFoundError):
                there: api.ConsumerInfo = await js.consumer_info(stream, self._name)
                return there
        config = settings.fresh(self._subscription, uuid.uuid4().hex)
        since = (await js.stream_info(stream)).created
        if self._stream_since is None:
            config.deliver_policy = api.DeliverPolicy.NEW
        elif self._stream_since == since:
            config.deliver_policy = api.DeliverPolicy.BY_START_SEQUENCE
            config.opt_start_seq = self._seen + 1
        # Else the stream is another one, and all of it is new.
        info = await js.add_consumer(stream, config)
        self._stream_since, self._seen = since, 0 if info.delivered is None else info.delivered.stream_seq
        return info

    async def _durable(self, stream: str, name: str) -> api.ConsumerInfo:
        js, given = self._link.js, self._subscription
        try:
            info: api.ConsumerInfo = await js.consumer_info(stream, name)
        except NotFoundError:
            return await js.add_consumer(stream, settings.fresh(given, name))
        if info.config.deliver_subject:
            raise BadInput(f"{given.name}: the consumer {name!r} of stream {stream} is pushed to; a subscriber pulls")
        await self._check_subjects(stream, info)
        changes = settings.changes(given, info.config)
        if changes:
            log.info("%s changes the consumer %r of stream %s: %s", given.name, name, stream, changes)
            info = await js.add_consumer(stream, info.config.evolve(**changes))
        return info

    async def _check_subjects(self, stream: str, info: api.ConsumerInfo) -> None:
        given = self._subscription
        subjects = settings.handed_out(info.config, (await self._link.js.stream_info(stream)).config)
        told = f"{given.name}: the consumer {info.name!r} of stream {stream} hands out {', '.join(subjects)}"
        if not all(settings.covers(given.queue, one) for one in subjects):
            raise BadInput(f"{told}, not {given.queue}; give this subscriber another durable name")
        if subjects and given.queue not in subjects:
            log.warning("%s, which is not all of %s", told, given.queue)

    def wait_of(self, attempt: int) -> float | None:
        """How long JetStream waits for a settlement; None where it does not."""
        config = self._config
        if config.ack_policy == api.AckPolicy.NONE:
            return None
        if config.backoff:
            return config.backoff[min(attempt, len(config.backoff)) - 1]
        return config.ack_wait or settings.ACK_WAIT

    @property
    def shortest_wait(self) -> float:
        config = self._config
        return min(config.backoff or [config.ack_wait or settings.ACK_WAIT])
