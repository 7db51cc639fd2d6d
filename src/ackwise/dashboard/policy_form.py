"""Form of a queue's policy: texts of the fields, parsed into a policy and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.policy import Backoff, QueuePolicy

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|min|h|d|w|)\s*", re.IGNORECASE)
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_SIZE = re.compile(r"\s*(\d+)\s*(b|kib|mib|gib|)\s*", re.IGNORECASE)
_BYTES = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_LONGEST = 200
"""Characters of a field's text."""


class PolicyField(NamedTuple):
    """One field of the form. `choices` makes it a select. An `optional` field may be empty, which means never."""

    name: str
    label: str
    kind: str
    hint: str = ""
    optional: bool = False
    choices: tuple[tuple[str, str], ...] = ()


def _choice(name: str, label: str, hint: str, *choices: tuple[str, str]) -> PolicyField:
    return PolicyField(name, label, "choice", hint, choices=choices)


GROUPS: tuple[tuple[str, tuple[PolicyField, ...]], ...] = (
    (
        "Delivery",
        (
            PolicyField("lease_seconds", "Lease", "duration", "Time to settle a delivery, such as 30s or 5m"),
            _choice(
                "exclusivity",
                "Exclusivity",
                "What one claim locks for its group",
                ("none", "none"),
                ("partition", "partition"),
                ("queue", "queue"),
            ),
            _choice(
                "order",
                "Order",
                "Strict: a failure stops its partition",
                ("", "as exclusivity needs"),
                ("strict", "strict"),
                ("relaxed", "relaxed"),
            ),
            PolicyField("delay_seconds", "Delay", "duration", "Time until a new message is claimable"),
            PolicyField("window_seconds", "Window", "duration", "Quiet time that a burst needs before delivery"),
            PolicyField("max_payload_bytes", "Largest payload", "size", "Such as 4MiB"),
        ),
    ),
    (
        "Failures",
        (
            PolicyField("retry_limit", "Retry limit", "count", "Failures until a message is dead; empty: never", True),
            _choice(
                "retry_counting",
                "Limit counts",
                "Retries do not count the first attempt",
                ("failures", "failures"),
                ("retries", "retries"),
            ),
            PolicyField("delivery_limit", "Delivery limit", "auto", "Deliveries until dead; auto; empty: never", True),
            _choice(
                "on_failure",
                "On failure",
                "Rewind: the later messages of the partition return, too",
                ("skip", "skip"),
                ("rewind", "rewind"),
            ),
            PolicyField("expiry_counts", "An expired lease counts as a failure", "check"),
            PolicyField("dead_letters", "Keep dead letters", "check"),
        ),
    ),
    (
        "Backoff",
        (
            _choice(
                "backoff.kind",
                "Backoff",
                "Wait after a failure",
                ("none", "none"),
                ("fixed", "fixed"),
                ("exponential", "exponential"),
                ("schedule", "schedule"),
            ),
            PolicyField("backoff.seconds", "First wait", "duration", "For fixed and exponential"),
            PolicyField("backoff.factor", "Factor", "number", "Multiplies each wait, 1 to 100"),
            PolicyField("backoff.cap", "Longest wait", "duration"),
            PolicyField("backoff.jitter", "Jitter", "number", "Random part of a wait, 0 to 1"),
            PolicyField("backoff.delays", "Schedule", "durations", "For schedule: 1s, 10s, 5m"),
        ),
    ),
    (
        "Retention",
        (
            PolicyField("max_wait_seconds", "Max wait", "duration", "Unfinished messages then die; empty: never", True),
            PolicyField("completed_retention_seconds", "Keep finished messages", "duration", "Empty: for ever", True),
            PolicyField("retention_seconds", "Keep any message", "duration", "Also unread ones; empty: for ever", True),
            PolicyField("dedupe_seconds", "Remember transaction ids", "duration", "0: for ever"),
        ),
    ),
)
FIELDS = {field.name: field for _, fields in GROUPS for field in fields}


class PolicyErrors(BadInput):
    """Fields of the form that could not be read, with a text for each."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = dict(errors)


def texts_of(policy: Mapping[str, object]) -> dict[str, str]:
    """The texts of the form's fields for a stored policy. A check box has `on` or an empty text."""
    whole = msgspec.structs.asdict(msgspec.convert({**policy}, QueuePolicy))
    backoff: Backoff = whole["backoff"]
    values = {**whole, **{f"backoff.{name}": value for name, value in msgspec.structs.asdict(backoff).items()}}
    return {name: _text(values[name], field) for name, field in FIELDS.items()}


def policy_of(form: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a policy from the texts of the form. Raises `PolicyErrors`.

    The engine checks the ranges.
    """
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, field in FIELDS.items():
        try:
            values[name] = _value(form.get(name, "").strip(), field)
        except BadInput as problem:
            errors[name] = problem.message
    if errors:
        raise PolicyErrors(errors)
    backoff = {name.partition(".")[2]: values.pop(name) for name in list(values) if name.startswith("backoff.")}
    return {**values, "backoff": backoff}


def errors_of(problem: AckwiseError) -> dict[str, str]:
    """The texts of an error by field. The key is empty if the error concerns no field."""
    if isinstance(problem, PolicyErrors):
        return problem.errors
    words = set(re.findall(r"[a-z_]+", problem.message.lower())) if isinstance(problem, BadInput) else set()
    for name in FIELDS:
        outer, _, inner = name.rpartition(".")
        if inner in words and (not outer or outer in words):
            return {name: problem.message}
    return {"": problem.message}


def _value(text: str, field: PolicyField) -> object:
    if len(text) > _LONGEST:
        raise BadInput(f"{field.label} is longer than {_LONGEST} characters")
    if field.kind == "check":
        return text == "on"
    if field.kind == "choice":
        if text not in dict(field.choices):
            raise BadInput(f"{field.label} must be one of {', '.join(key or 'empty' for key, _ in field.choices)}")
        return text or None
    if not text and field.optional:
        return None
    return _READERS[field.kind](text, field.label)


def duration_of(text: str, label: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise BadInput(f"{label} must be a duration such as 30s, 5m, 2h or 7d")
    return float(match[1]) * _SECONDS[match[2].lower()]


def _durations(text: str, label: str) -> list[float]:
    return [duration_of(part, label) for part in text.split(",") if part.strip()]


def _count(text: str, label: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise BadInput(f"{label} must be a whole number")
    return int(text)


def _number(text: str, label: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{label} must be a number") from None


def _size(text: str, label: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise BadInput(f"{label} must be a size such as 64KiB or 4MiB")
    return int(match[1]) * _BYTES[match[2].lower()]


def _auto(text: str, label: str) -> int | str:
    return "auto" if text == "auto" else _count(text, f"{label} must be auto, empty or a number; it")


_READERS = {
    "duration": duration_of, "durations": _durations, "count": _count, "number": _number, "size": _size, "auto": _auto,
}  # fmt: skip


def _text(value: object, field: PolicyField) -> str:
    if value is None:
        return ""
    if field.kind == "check":
        return "on" if value else ""
    if field.kind == "durations":
        assert isinstance(value, tuple)
        return ", ".join(map(short_duration, value))
    if field.kind == "duration":
        assert isinstance(value, int | float)
        return short_duration(value)
    if field.kind == "size":
        assert isinstance(value, int)
        return next((f"{value // size}{unit}" for unit, size in _UNITS if value and value % size == 0), str(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def short_duration(seconds: float) -> str:
    """A duration that `policy_of` reads as the same number: 30s, 5m, 7d."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:.0f}{unit}"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def summary(policy: Mapping[str, object]) -> str:
    """The most important values of a policy in one line."""
    whole = msgspec.convert({**policy}, QueuePolicy)
    parts = [f"{short_duration(whole.lease_seconds)} lease"]
    parts.append("no retry limit" if whole.retry_limit is None else f"{whole.retry_limit} {whole.retry_counting}")
    if whole.backoff.kind != "none":
        parts.append(f"{whole.backoff.kind} backoff")
    if whole.exclusivity != "none":
        parts.append(f"exclusive {whole.exclusivity}")
    if not whole.dead_letters:
        parts.append("no dead letters")
    return ", ".join(parts)
