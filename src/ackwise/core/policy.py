"""Queue and group policy, backoff."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal

import msgspec

from ackwise.core import validation
from ackwise.core.errors import BadInput
from ackwise.core.structs import prepare_types

Exclusivity = Literal["partition", "queue", "none"]
Order = Literal["strict", "relaxed"]
Note = bool | int | float | str
DAY = 24 * 3600.0
MAX_NOTES = 64


class Backoff(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Wait after a failure: `fixed`, `exponential` with a cap, or a `schedule` whose last entry repeats."""

    kind: Literal["none", "fixed", "exponential", "schedule"] = "none"
    seconds: float = 0.0
    factor: float = 2.0
    cap: float = 3600.0
    delays: tuple[float, ...] = ()
    jitter: float = 0.0

    def delay_micros(self, failures: int, roll: float) -> int:
        """Delay before the next attempt after failure number `failures`. `roll` in [0, 1) decides the jitter."""
        match self.kind:
            case "none":
                return 0
            case "fixed":
                base = self.seconds
            case "exponential":
                base = self._exponential(failures)
            case "schedule":
                base = self.delays[min(failures, len(self.delays)) - 1] if self.delays else 0.0
        return round(base * (1.0 - self.jitter * roll) * validation.MICROS)

    def _exponential(self, failures: int) -> float:
        if self.seconds == 0.0:
            return 0.0
        power = (failures - 1) * math.log2(self.factor) if self.factor > 0 else 0.0
        if power > 60:
            return self.cap
        return min(self.cap, self.seconds * self.factor ** (failures - 1))

    def check(self) -> None:
        for what, value in (("seconds", self.seconds), ("cap", self.cap), *(("delays", d) for d in self.delays)):
            validation.micros(value, f"backoff {what}")
        if not math.isfinite(self.factor) or not 1.0 <= self.factor <= 100.0:
            raise BadInput("backoff factor must be between 1 and 100")
        if not 0.0 <= self.jitter <= 1.0:
            raise BadInput("backoff jitter must be between 0 and 1")
        if self.kind == "schedule" and not self.delays:
            raise BadInput("a backoff schedule needs at least one delay")


class QueuePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rules of one queue. Durations are seconds. `None` means never or no limit."""

    lease_seconds: float = 30.0
    retry_limit: int | None = 3
    retry_counting: Literal["failures", "retries"] = "failures"
    delivery_limit: int | Literal["auto"] | None = "auto"
    expiry_counts: bool = True
    on_failure: Literal["skip", "rewind"] = "skip"
    exclusivity: Exclusivity = "none"
    order: Order | None = None
    backoff: Backoff = Backoff()
    delay_seconds: float = 0.0
    window_seconds: float = 0.0
    """A lane delivers unread messages only when its newest message is this old. This gathers bursts."""
    dedupe_seconds: float = 7 * DAY
    retention_seconds: float | None = None
    completed_retention_seconds: float | None = 7 * DAY
    max_wait_seconds: float | None = None
    dead_letters: bool = True
    max_payload_bytes: int = validation.DEFAULT_MAX_PAYLOAD
    notes: tuple[tuple[str, Note], ...] = ()
    """Options of a protocol that the engine only stores and shows again."""

    @property
    def effective_order(self) -> Order:
        return self.order or order_for(self.exclusivity)

    @property
    def effective_delivery_limit(self) -> int | None:
        if self.delivery_limit == "auto":
            return max(20, 2 * (self.retry_limit or 0))
        return self.delivery_limit

    def merged(self, changes: dict[str, Any]) -> QueuePolicy:
        """This policy with changed fields. A mapping of `notes` changes single notes."""
        try:
            plain = msgspec.to_builtins(changes)
        except (TypeError, ValueError, OverflowError) as problem:
            raise BadInput(f"queue policy: {problem}") from None
        if isinstance(plain.get("notes"), dict):
            noted = {**dict(self.notes), **plain["notes"]}
            plain["notes"] = sorted((name, value) for name, value in noted.items() if value is not None)
        return parse_policy({**msgspec.to_builtins(self), **plain})

    def check(self) -> QueuePolicy:
        _check_types(self)
        validation.lease_micros(self.lease_seconds)
        for field in ("delay_seconds", "window_seconds", "dedupe_seconds"):
            validation.micros(getattr(self, field), field)
        for field in ("retention_seconds", "completed_retention_seconds", "max_wait_seconds"):
            if getattr(self, field) is not None:
                validation.micros(getattr(self, field), field)
        if self.retry_limit is not None:
            validation.count(self.retry_limit, "retry_limit", least=0)
        if self.delivery_limit is not None and self.delivery_limit != "auto":
            validation.count(self.delivery_limit, "delivery_limit", least=1)
        validation.count(self.max_payload_bytes, "max_payload_bytes", least=1, most=1 << 30)
        validation.count(len(self.notes), "the number of notes", least=0, most=MAX_NOTES)
        for name, value in self.notes:
            validation.name(name, "a note's name")
            if isinstance(value, str):
                validation.storable(value, name)
        self.backoff.check()
        return self


NEW_QUEUE_POLICY = QueuePolicy(
    retry_limit=8, backoff=Backoff(kind="exponential", seconds=1.0, factor=2.0, cap=300.0, jitter=0.5)
)
"""Policy of a queue that the native API, a subscriber or Spark creates. Seven retries last at least 63 seconds, so an
outage of a minute dead-letters nothing. These values are not the defaults of `QueuePolicy`: policies are stored without
default values, so other defaults would change every stored queue."""


class GroupPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Policy of one group. An absent field has the queue's value."""

    retry_limit: int | msgspec.UnsetType | None = msgspec.UNSET
    backoff: Backoff | msgspec.UnsetType = msgspec.UNSET

    def over(self, policy: QueuePolicy) -> QueuePolicy:
        changes: dict[str, Any] = {}
        if self.retry_limit is not msgspec.UNSET:
            changes["retry_limit"] = self.retry_limit
        if self.backoff is not msgspec.UNSET:
            changes["backoff"] = self.backoff
        return msgspec.structs.replace(policy, **changes) if changes else policy

    def check(self) -> GroupPolicy:
        _check_types(self)
        if self.retry_limit is not msgspec.UNSET and self.retry_limit is not None:
            validation.count(self.retry_limit, "retry_limit", least=0)
        if self.backoff is not msgspec.UNSET:
            self.backoff.check()
        return self


def _check_types(policy: QueuePolicy | GroupPolicy) -> None:
    """Check the field types, which a struct does not check itself. Decoding the stored text would fail later."""
    try:
        msgspec.convert(msgspec.to_builtins(policy), type(policy))
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as problem:
        raise BadInput(f"policy: {problem}") from None


@lru_cache(maxsize=256)
def checked(policy: QueuePolicy) -> QueuePolicy:
    """The policy, checked once per value."""
    return policy.check()


def order_for(exclusivity: Exclusivity) -> Order:
    """Default order: strict for exclusive claims, relaxed otherwise."""
    return "relaxed" if exclusivity == "none" else "strict"


def parse_policy(fields: dict[str, Any]) -> QueuePolicy:
    """A policy from plain values. Raises `BadInput` that names the wrong field."""
    try:
        return msgspec.convert(fields, QueuePolicy).check()
    except msgspec.ValidationError as problem:
        raise BadInput(f"queue policy: {problem}") from None


prepare_types(QueuePolicy, GroupPolicy)
