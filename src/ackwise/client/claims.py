"""Claims as keyword arguments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypeVar, get_args

from ackwise.client.moments import instant, seconds
from ackwise.core.commands import Claim
from ackwise.core.errors import BadInput
from ackwise.core.limits import Seconds, claim_bytes, lease_micros
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.policy import Exclusivity, Order

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
    """What the engine is asked, with seconds and datetimes translated."""
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
        start=started_at(start),
    )


def started_at(start: Start) -> Literal["all", "new"] | int:
    """Where a new group begins."""
    if isinstance(start, datetime):
        return instant(start, "start")
    if start not in ("all", "new"):
        raise BadInput(f"start must be 'all', 'new' or a datetime, not {start!r}")
    return start


def patience(wait: Seconds | None, stop_when_empty: bool) -> float:
    """How long a loop waits for each claim: not at all if it stops when empty, else it must, or it would spin."""
    if wait is None:
        return 0.0 if stop_when_empty else 20.0
    waits = seconds(wait, "wait")
    if waits == 0 and not stop_when_empty:
        raise BadInput("wait must be more than 0 seconds unless stop_when_empty is set")
    return waits


def one_of(value: T | None, known: tuple[T, ...], what: str) -> T | None:
    if value is not None and value not in known:
        raise BadInput(f"{what} must be one of {', '.join(map(str, known))}, not {value!r}")
    return value


def _tuple(values: Sequence[T] | None) -> tuple[T, ...] | None:
    return None if values is None else tuple(values)
