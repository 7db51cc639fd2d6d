"""Where handlers and publishers are declared."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ackwise.core import limits
from ackwise.core.limits import Seconds
from ackwise.subscriber.codecs import Codec
from ackwise.subscriber.feeds.feed import Link
from ackwise.subscriber.policies import AckPolicy, Undecodable, chosen
from ackwise.subscriber.publishing import Publisher
from ackwise.subscriber.signatures import read
from ackwise.subscriber.subscription import (
    MAX_PENDING,
    Retries,
    Subscription,
    Waits,
    check_numbers,
    group_of,
    naming,
    schedule,
    under,
)

log = logging.getLogger("ackwise.subscriber")

H = TypeVar("H", bound=Callable[..., Any])
T = TypeVar("T")


class Router:
    """Handlers and publishers that an app takes in with `include_router`; `prefix` stands before their queues.

    What it does not say itself (`codec`, `on_undecodable`) the app says.
    """

    def __init__(
        self, prefix: str = "", *, codec: Codec | None = None, on_undecodable: Undecodable | None = None
    ) -> None:
        self.prefix, self.codec = prefix, codec
        self.subscriptions: list[Subscription] = []
        self.publishers: list[Publisher[Any]] = []
        self._on_undecodable = on_undecodable
        self._above: Router | None = None

    def subscriber(
        self,
        queue: str,
        *,
        group: str | None = None,
        durable: str | None = None,
        ephemeral: bool = False,
        stream: str | None = None,
        ack: AckPolicy | None = None,
        auto_ack: bool | None = None,
        concurrency: int = 1,
        prefetch: int | None = None,
        max_pending: int = MAX_PENDING,
        lease: Seconds | None = None,
        retry_limit: Retries = msgspec.UNSET,
        backoff: Waits = msgspec.UNSET,
        codec: Codec | None = None,
        on_undecodable: Undecodable | None = None,
        in_thread: bool | None = None,
    ) -> Callable[[H], H]:
        """Feed the decorated function from a queue. `order: Order` leaves the settlement to the app, by `ack`;
        `msg: Message[Order]` leaves it to the function.

        `durable` is a spelling of `group`; `retry_limit` and `backoff` are the group's own; `stream` and `ephemeral`
        are for NATS. A `def` runs in a thread, unless `in_thread=False`.
        """

        def declare(handler: H) -> H:
            signature = read(handler, in_thread)
            name = handler.__qualname__
            self._check_open(name)
            with naming(name):
                limits.name(self.prefix + queue, "queue")
                policy = chosen(ack, auto_ack)
                check_numbers(concurrency, prefetch, max_pending, lease)
                waits = schedule(backoff, retry_limit)
                named = group_of(group, durable, ephemeral)
            if signature.explicit and policy is not None:
                log.warning("%s takes a Message and settles it itself; ack=%s is ignored", name, policy)
            said = Subscription(
                queue=queue,
                handler=handler,
                signature=signature,
                ack=policy or AckPolicy.ON_SUCCESS,
                group=named,
                ephemeral=ephemeral,
                stream=stream,
                concurrency=concurrency,
                prefetch=prefetch,
                max_pending=max_pending,
                lease=lease,
                retry_limit=retry_limit,
                backoff=waits,
                undecodable=on_undecodable,
                codec=codec,
            )
            self.subscriptions.append(self._taken(said))
            return handler

        return declare

    def publisher(self, queue: str, kind: type[T], *, codec: Codec | None = None) -> Publisher[T]:
        """Puts payloads of type `kind` into a queue, once the app is started."""
        limits.name(self.prefix + queue, "queue")
        self._check_open(f"the publisher of {queue}")
        made = Publisher(queue, kind, self, codec)
        made.taken(self.prefix, self.codec)
        self.publishers.append(made)
        return made

    def include_router(self, router: Router) -> None:
        """Take in what another one declared, under our own prefix. That one is complete then."""
        if router._above is not None or router is self:
            raise RuntimeError("this router is taken in already")
        self._check_open("a router")
        self.subscriptions += [self._taken(one) for one in router.subscriptions]
        for publisher in router.publishers:
            publisher.taken(self.prefix, self.codec)
            self.publishers.append(publisher)
        router._above = self

    def _taken(self, subscription: Subscription) -> Subscription:
        return under(subscription, self.prefix, self.codec, self._on_undecodable)

    def _check_open(self, what: str) -> None:
        if self._above is not None:
            raise RuntimeError(f"{what} comes too late: its router is taken in already; declare it before that")

    @property
    def source(self) -> str | None:
        """What CloudEvents call their source; None: they are not written."""
        return self._app().source

    @property
    def traced(self) -> bool:
        return self._app().traced

    def link(self) -> Link:
        return self._app().link()

    def _app(self) -> Router:
        if self._above is None:
            raise RuntimeError("no app has taken in this router; call app.include_router(router)")
        return self._above
