"""Converts keyword arguments to claim commands and policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, TypeVar, get_args

import msgspec

from ackwise.core.commands import Claim
from ackwise.core.errors import BadInput
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.policy import Backoff, Exclusivity, GroupPolicy, Note, Order, QueuePolicy
from ackwise.core.validation import Seconds, claim_bytes, lease_micros
from ackwise.wire.timestamps import instant, seconds

T = TypeVar("T")
Start = Literal["all", "new"] | datetime


def claim_command(
    queue: str | None,
    *,
    group: str | None,
    max: int,
    lease: Seconds | None,
    partitions: Sequence[str] | None,
    priorities: Sequence[int] | None,
    exclusivity: Exclusivity | None,
    order: Order | None,
    owner: str | None,
    start: Start,
    namespace: str | None = None,
    task: str | None = None,
    max_partitions: int | None = None,
    max_bytes: int | None = None,
    key: str | None = None,
    auto_ack: bool = False,
) -> Claim:
    """Build a claim command. Seconds and datetimes become microseconds."""
    return Claim(
        queue=queue,
        namespace=namespace,
        task=task,
        group=QUEUE_MODE if group is None else group,
        partitions=(partitions,) if isinstance(partitions, str) else _tuple(partitions),
        priorities=_tuple(priorities),
        most=max,
        most_bytes=None if max_bytes is None else claim_bytes(max_bytes),
        most_partitions=max_partitions,
        lease=None if lease is None else lease_micros(lease),
        exclusivity=one_of(exclusivity, get_args(Exclusivity), "exclusivity"),
        order=one_of(order, get_args(Order), "order"),
        owner=owner,
        key=key,
        auto_ack=auto_ack,
        start=start_position(start),
    )


def start_position(start: Start) -> Literal["all", "new"] | int:
    """Where a new group begins: `all`, `new`, or an instant in microseconds."""
    if isinstance(start, datetime):
        return instant(start, "start")
    if start not in ("all", "new"):
        raise BadInput(f"start must be 'all', 'new' or a datetime, not {start!r}")
    return start


def poll_seconds(wait: Seconds | None, stop_when_empty: bool) -> float:
    """Seconds that each claim of a loop waits: 20 by default, 0 if the loop stops when the queue is empty."""
    if wait is None:
        return 0.0 if stop_when_empty else 20.0
    waits = seconds(wait, "wait")
    if waits == 0 and not stop_when_empty:
        raise BadInput("wait must be more than 0 seconds unless stop_when_empty is set")
    return waits


def one_of(value: T | None, known: tuple[T, ...], what: str) -> T | None:
    """Return `value` if it is None or known, else raise `BadInput`."""
    if value is not None and value not in known:
        raise BadInput(f"{what} must be one of {', '.join(map(str, known))}, not {value!r}")
    return value


def _tuple(values: Sequence[T] | None) -> tuple[T, ...] | None:
    return None if values is None else tuple(values)


class PolicyFields(TypedDict, total=False):
    """The fields of `QueuePolicy` as keyword arguments, so that type checkers find misspelt and mistyped options."""

    lease_seconds: Seconds
    retry_limit: int | None
    retry_counting: Literal["failures", "retries"]
    delivery_limit: int | Literal["auto"] | None
    expiry_counts: bool
    on_failure: Literal["skip", "rewind"]
    exclusivity: Exclusivity
    order: Order | None
    backoff: Backoff
    delay_seconds: Seconds
    window_seconds: Seconds
    dedupe_seconds: Seconds
    retention_seconds: Seconds | None
    completed_retention_seconds: Seconds | None
    max_wait_seconds: Seconds | None
    dead_letters: bool
    max_payload_bytes: int
    notes: Mapping[str, Note | None] | Sequence[tuple[str, Note]]


KNOWN = tuple(QueuePolicy.__struct_fields__)


def policy_fields(policy: QueuePolicy | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The policy fields of a call, checked. An unknown field raises `BadInput` with the known ones."""
    unknown = sorted(set(fields) - set(KNOWN))
    if unknown:
        raise BadInput(f"unknown policy field {unknown[0]!r}; known: {', '.join(KNOWN)}")
    whole = {} if policy is None else msgspec.structs.asdict(policy)
    changes = {name: _plain(value) for name, value in {**whole, **fields}.items()}
    QueuePolicy().merged(changes)
    return changes


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return msgspec.to_builtins(value) if isinstance(value, Backoff) else value


def as_backoff(backoff: Backoff | Iterable[Seconds]) -> Backoff:
    """A `Backoff`, or a schedule from delays in seconds. The last delay repeats. No delay means no backoff."""
    if isinstance(backoff, Backoff):
        return backoff
    try:
        delays = tuple(seconds(delay, "backoff") for delay in backoff)
    except TypeError:
        raise BadInput(f"backoff is a Backoff or a list of seconds, not {backoff!r}") from None
    return Backoff(kind="schedule", delays=delays) if delays else Backoff()


def group_policy(retry_limit: object, backoff: object) -> GroupPolicy | None:
    """The policy of a group. None if it overrides nothing."""
    changes = {
        name: _plain(value)
        for name, value in (("retry_limit", retry_limit), ("backoff", backoff))
        if value is not msgspec.UNSET
    }
    if not changes:
        return None
    try:
        return msgspec.convert(changes, GroupPolicy).check()
    except msgspec.ValidationError as problem:
        raise BadInput(f"group policy: {problem}") from None
