"""Router: declares handlers and publishers."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ackwise.core import validation
from ackwise.core.errors import BadInput
from ackwise.core.validation import Seconds
from ackwise.subscriber.codecs import Codec
from ackwise.subscriber.feeds.port import TransportLink
from ackwise.subscriber.publisher import Publisher
from ackwise.subscriber.signatures import read
from ackwise.subscriber.subscription import (
    MAX_PENDING,
    AckPolicy,
    Retries,
    Subscription,
    UndecodablePolicy,
    Waits,
    ack_policy,
    backoff_policy,
    check_numbers,
    check_words,
    group_of,
    inherit_options,
    positive_seconds,
    prefix_errors,
)

log = logging.getLogger("ackwise.subscriber")

H = TypeVar("H", bound=Callable[..., Any])
T = TypeVar("T")


class Router:
    """Handlers and publishers that an app includes with `include_router`. `prefix` is put before their queue names.

    Options that the router does not set (`codec`, `on_undecodable`) come from the app.
    """

    def __init__(
        self, prefix: str = "", *, codec: Codec | None = None, on_undecodable: UndecodablePolicy | None = None
    ) -> None:
        self.prefix, self.codec = prefix, codec
        self.subscriptions: list[Subscription] = []
        self.publishers: list[Publisher[Any]] = []
        self._on_undecodable = on_undecodable
        self._parent: Router | None = None

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
        on_undecodable: UndecodablePolicy | None = None,
        in_thread: bool | None = None,
        timeout: Seconds | None = None,
    ) -> Callable[[H], H]:
        """Decorator: call the function for each message of `queue`.

        The type of the function's parameter decides about settlement. With `order: Order` the app settles the message,
        as `ack` says. With `msg: Message[Order]` the function settles it.

        - `group` is the consumer group. `durable` is another name for it.
        - `ack` is an `AckPolicy`. `auto_ack=True` means `ON_SUCCESS`, `auto_ack=False` means `MANUAL`.
        - `concurrency` is how many messages are handled at the same time.
        - `prefetch` is how many messages are claimed ahead. By default it follows the handler's speed.
        - `max_pending` bounds the messages that are claimed and not settled.
        - `lease` is the lease's duration in seconds.
        - `retry_limit` and `backoff` override the queue's policy for the group. `backoff` may be a list of seconds.
        - `in_thread` runs a `def` in a thread (the default) or, if False, on the event loop.
        - `timeout` is how many seconds the function may take. After it the message is retried. An async function is
          cancelled, a thread is reported and replaced. By default there is no limit.
        - `stream` and `ephemeral` are for NATS only.
        """
        if callable(queue):
            name = getattr(queue, "__qualname__", repr(queue))
            raise TypeError(f'{name}: name the queue: @app.subscriber("queue") instead of @app.subscriber')

        def declare(handler: H) -> H:
            signature = read(handler, in_thread)
            name = handler.__qualname__
            self._check_open(name)
            with prefix_errors(name):
                validation.name(self.prefix + queue, "queue")
                policy = ack_policy(ack, auto_ack)
                check_numbers(concurrency, prefetch, max_pending, lease)
                waits = backoff_policy(backoff, retry_limit)
                named = group_of(group, durable, ephemeral)
                limit = None if timeout is None else positive_seconds(timeout, "timeout")
                check_words(on_undecodable, auto_ack=auto_ack, in_thread=in_thread, ephemeral=ephemeral, stream=stream)
                if limit is not None and in_thread is False and not inspect.iscoroutinefunction(handler):
                    raise BadInput("timeout= cannot end a plain function on the event loop; leave in_thread=False out")
            if signature.explicit and policy is not None:
                log.warning("%s takes a Message and settles it itself; ack=%s is ignored", name, policy)
            subscription = Subscription(
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
                timeout=limit,
            )
            self.subscriptions.append(self._with_own_options(subscription))
            return handler

        return declare

    def publisher(self, queue: str, kind: type[T], *, codec: Codec | None = None) -> Publisher[T]:
        """Declare a publisher of payloads of type `kind` to a queue. It works while the app is connected."""
        validation.name(self.prefix + queue, "queue")
        self._check_open(f"the publisher of {queue}")
        publisher = Publisher(queue, kind, self, codec)
        publisher.include(self.prefix, self.codec)
        self.publishers.append(publisher)
        return publisher

    def include_router(self, router: Router) -> None:
        """Include another router's handlers and publishers, under this router's prefix. That router is closed then."""
        if router._parent is not None or router is self:
            raise RuntimeError("this router is included already")
        self._check_open("a router")
        self.subscriptions += [self._with_own_options(subscription) for subscription in router.subscriptions]
        for publisher in router.publishers:
            publisher.include(self.prefix, self.codec)
            self.publishers.append(publisher)
        router._parent = self

    def _with_own_options(self, subscription: Subscription) -> Subscription:
        return inherit_options(subscription, self.prefix, self.codec, self._on_undecodable)

    def _check_open(self, what: str) -> None:
        if self._parent is not None:
            raise RuntimeError(
                f"{what} comes too late: its router is included already; declare it before include_router"
            )

    @property
    def source(self) -> str | None:
        """The `source` attribute of CloudEvents. None if publishers write no CloudEvents headers."""
        return self._app().source

    @property
    def traced(self) -> bool:
        return self._app().traced

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the app. None before the app connects."""
        return self._app().loop

    def link(self) -> TransportLink:
        return self._app().link()

    def _app(self) -> Router:
        if self._parent is None:
            raise RuntimeError("no app includes this router; call app.include_router(router)")
        return self._parent
