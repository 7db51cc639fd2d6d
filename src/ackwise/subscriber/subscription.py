"""Options of one subscription, and its acknowledgement policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, get_args

import msgspec

from ackwise.client.options import as_backoff, group_policy, one_of
from ackwise.core import validation
from ackwise.core.errors import BadInput
from ackwise.core.policy import Backoff
from ackwise.core.validation import Seconds
from ackwise.subscriber.codecs import Codec, Read
from ackwise.subscriber.signatures import Signature
from ackwise.wire.timestamps import seconds


class AckPolicy(StrEnum):
    """When the app settles messages of a handler that takes only the payload."""

    ON_SUCCESS = "on_success"
    """Ack when the handler returns, retry when it raises."""
    MANUAL = "manual"
    """Never: the message comes back after its deadline."""
    FIRST = "first"
    """Ack at delivery: at most once."""


UndecodablePolicy = Literal["dead_letter", "nak"]
"""Policy for a payload that cannot be decoded. By default it is dead-lettered at once: a retry cannot help."""

CloudEvents = Literal["write", "require", "off"]
"""`write`: publishers write CloudEvents headers. `require`: a message without them is undecodable. `off`: neither."""


def ack_policy(ack: AckPolicy | None, auto_ack: bool | None) -> AckPolicy | None:
    """The policy that `ack` or `auto_ack` names. None if the caller sets neither."""
    if auto_ack is None:
        return None if ack is None else AckPolicy(ack)
    spelled = AckPolicy.ON_SUCCESS if auto_ack else AckPolicy.MANUAL
    if ack is not None and AckPolicy(ack) is not spelled:
        raise TypeError(f"ack={AckPolicy(ack)} and auto_ack={auto_ack} contradict each other; use one of them")
    return spelled


Retries = int | msgspec.UnsetType | None
Waits = Backoff | Sequence[Seconds] | msgspec.UnsetType
MAX_CONCURRENCY = 10_000
MAX_PENDING = 1000


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """A handler, its queue and its options."""

    queue: str
    handler: Callable[..., Any]
    signature: Signature
    ack: AckPolicy
    group: str | None = None
    ephemeral: bool = False
    stream: str | None = None
    concurrency: int = 1
    prefetch: int | None = None
    max_pending: int = MAX_PENDING
    lease: Seconds | None = None
    retry_limit: Retries = msgspec.UNSET
    backoff: Backoff | msgspec.UnsetType = msgspec.UNSET
    undecodable: UndecodablePolicy | None = None
    codec: Codec | None = None
    """None, like `undecodable`, until an including router or the app sets it."""
    read: Read | None = None
    timeout: float | None = None
    """Seconds that the handler may take."""

    @property
    def name(self) -> str:
        return str(self.handler.__qualname__)

    @property
    def explicit(self) -> bool:
        return self.signature.explicit

    @property
    def by_app(self) -> bool:
        """Whether the app settles the message by the handler's result."""
        return not self.explicit and self.ack is AckPolicy.ON_SUCCESS

    @property
    def acked_first(self) -> bool:
        return not self.explicit and self.ack is AckPolicy.FIRST


def inherit_options(
    subscription: Subscription, prefix: str, codec: Codec | None, undecodable: UndecodablePolicy | None
) -> Subscription:
    """The subscription as part of a router: with its prefix, and with its options where the subscription has none."""
    read, codec = subscription.read, subscription.codec or codec
    if read is None and codec is not None:
        try:
            read = codec.reader(subscription.signature.kind)
        except Exception as problem:
            kind = subscription.signature.kind
            raise TypeError(f"{subscription.name}: no payload can be decoded as {kind!r}: {problem}") from problem
    return replace(
        subscription,
        queue=prefix + subscription.queue,
        codec=codec,
        read=read,
        undecodable=subscription.undecodable or undecodable,
    )


@contextmanager
def prefix_errors(name: str) -> Iterator[None]:
    """Put the function's name before the text of errors in a decorator's arguments."""
    try:
        yield
    except TypeError as problem:
        raise TypeError(f"{name}: {problem}") from None
    except ValueError as problem:
        raise BadInput(f"{name}: {problem}") from None


def group_of(group: str | None, durable: str | None, ephemeral: bool) -> str | None:
    """The group's name from `group` or `durable`, which mean the same."""
    for value, what in ((group, "group"), (durable, "durable")):
        if value is not None:
            validation.name(value, what)
    if group is not None and durable is not None and group != durable:
        raise TypeError(f"group={group!r} and durable={durable!r} contradict each other; they mean the same")
    named = durable if group is None else group
    if ephemeral and named is not None:
        raise TypeError(f"ephemeral=True and a lasting {named!r} contradict each other; leave one of them out")
    return named


def check_numbers(concurrency: int, prefetch: int | None, max_pending: int, lease: Seconds | None) -> None:
    validation.count(concurrency, "concurrency", most=MAX_CONCURRENCY)
    validation.count(max_pending, "max_pending")
    if prefetch is not None:
        validation.count(prefetch, "prefetch", least=0)
    if lease is not None:
        validation.lease_micros(lease)


def check_words(
    undecodable: UndecodablePolicy | None,
    *,
    auto_ack: bool | None,
    in_thread: bool | None,
    ephemeral: bool,
    stream: str | None,
) -> None:
    """Check options whose values are words or flags. Type checkers find them too."""
    one_of(undecodable, get_args(UndecodablePolicy), "on_undecodable")
    for what, flag in (("auto_ack", auto_ack), ("in_thread", in_thread), ("ephemeral", ephemeral)):
        if flag is not None and not isinstance(flag, bool):
            raise BadInput(f"{what} must be True or False, not {flag!r}")
    if stream is not None and not isinstance(stream, str):
        raise BadInput(f"stream must be a string, not {stream!r}")


def positive_seconds(duration: Seconds, what: str) -> float:
    """A duration in seconds that is more than 0."""
    value = seconds(duration, what)
    if not value:
        raise BadInput(f"{what} must be more than 0 seconds; leave it out for no limit")
    return value


def backoff_policy(backoff: Waits, retry_limit: Retries) -> Backoff | msgspec.UnsetType:
    """The backoff policy from a `Backoff`, or from a list of delays in seconds. The last delay repeats."""
    waits = backoff if backoff is msgspec.UNSET else as_backoff(backoff)
    group_policy(retry_limit, waits)
    return waits
