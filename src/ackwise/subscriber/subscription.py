"""What `@app.subscriber(...)` says, checked when it is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ackwise.client.policies import group_policy
from ackwise.core import limits
from ackwise.core.errors import BadInput
from ackwise.core.limits import Seconds
from ackwise.core.policy import Backoff
from ackwise.subscriber.codecs import Codec, Read
from ackwise.subscriber.policies import AckPolicy, Undecodable
from ackwise.subscriber.signatures import Signature

Retries = int | msgspec.UnsetType | None
Waits = Backoff | Sequence[Seconds] | msgspec.UnsetType
MAX_CONCURRENCY = 10_000
MAX_PENDING = 1000


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """One handler and the queue that it is fed from."""

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
    undecodable: Undecodable | None = None
    codec: Codec | None = None
    """None, like `undecodable`, until somebody above has one."""
    read: Read | None = None

    @property
    def name(self) -> str:
        return str(self.handler.__qualname__)

    @property
    def explicit(self) -> bool:
        return self.signature.explicit

    @property
    def by_app(self) -> bool:
        """Whether the app settles what the handler returns or raises."""
        return not self.explicit and self.ack is AckPolicy.ON_SUCCESS

    @property
    def acked_first(self) -> bool:
        return not self.explicit and self.ack is AckPolicy.FIRST


def under(
    subscription: Subscription, prefix: str, codec: Codec | None, undecodable: Undecodable | None
) -> Subscription:
    """As it is inside something that has a prefix, and may have a codec: what it said itself stands."""
    given = subscription
    read, codec = given.read, given.codec or codec
    if read is None and codec is not None:
        try:
            read = codec.reader(given.signature.kind)
        except Exception as problem:
            kind = given.signature.kind
            raise TypeError(f"{given.name}: no payload can be read as {kind!r}: {problem}") from problem
    return replace(
        given, queue=prefix + given.queue, codec=codec, read=read, undecodable=given.undecodable or undecodable
    )


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Whatever is wrong with what a decorator says, the error tells of which function."""
    try:
        yield
    except TypeError as problem:
        raise TypeError(f"{name}: {problem}") from None
    except ValueError as problem:
        raise BadInput(f"{name}: {problem}") from None


def group_of(group: str | None, durable: str | None, ephemeral: bool) -> str | None:
    """`durable` is a spelling of `group`."""
    for given, what in ((group, "group"), (durable, "durable")):
        if given is not None:
            limits.name(given, what)
    if group is not None and durable is not None and group != durable:
        raise TypeError(f"group={group!r} and durable={durable!r} contradict each other; they mean the same")
    named = durable if group is None else group
    if ephemeral and named is not None:
        raise TypeError(f"ephemeral=True and a lasting {named!r} contradict each other; leave one of them out")
    return named


def check_numbers(concurrency: int, prefetch: int | None, max_pending: int, lease: Seconds | None) -> None:
    limits.count(concurrency, "concurrency", most=MAX_CONCURRENCY)
    limits.count(max_pending, "max_pending")
    if prefetch is not None:
        limits.count(prefetch, "prefetch", least=0)
    if lease is not None:
        limits.lease_micros(lease)


def schedule(backoff: Waits, retry_limit: Retries) -> Backoff | msgspec.UnsetType:
    """Delays one after the other, the last repeats."""
    if not isinstance(backoff, Backoff | msgspec.UnsetType):
        delays = tuple(limits.micros(one, "backoff") / limits.MICROS for one in backoff)
        backoff = Backoff(kind="schedule", delays=delays) if delays else Backoff()
    group_policy(retry_limit, backoff)
    return backoff
