"""Queen's words for ours: policies, queue options, instants, and who is a member of a group."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from ackwise.core.answers import QueueInfo
from ackwise.core.commands import Claim
from ackwise.core.errors import BadInput
from ackwise.core.limits import MICROS
from ackwise.core.native import instants
from ackwise.core.policy import Backoff, QueuePolicy
from ackwise.dialects.http import with_plus
from ackwise.dialects.queen.delivered import Delivered
from ackwise.dialects.queen.failing import Failing
from ackwise.dialects.queen.members import Members

_SEED = QueuePolicy(lease_seconds=300.0, exclusivity="partition", completed_retention_seconds=None)
_UPSTREAM = msgspec.structs.replace(
    _SEED, retry_counting="retries", expiry_counts=False, on_failure="rewind", delivery_limit=None
)
MOST_SEEN = 10_000
TRACE = "traceId"
"""The header that keeps a message's trace id."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_EPOCH = instants.EPOCH
_NO_LEASE_TIME = 60.0


class Words:
    """How this server understands Queen's words."""

    def __init__(self, *, upstream: bool = False, start: Literal["all", "new"] = "all") -> None:
        self.upstream = upstream
        """Answers and counts of the official server, where they differ from the seed's."""
        self.start = start
        """Where a new group begins that does not say."""
        self.members = Members()
        self.delivered = Delivered()
        self.failing = Failing()
        self._first_seen: dict[tuple[str | None, str | None, str], int] = {}

    def first_seen(self, claim: Claim, now: int) -> int:
        """When a group first asked for what is new in a namespace or task."""
        if len(self._first_seen) >= MOST_SEEN:
            self._first_seen.clear()
        return self._first_seen.setdefault((claim.namespace, claim.task, claim.group), now)

    def policy(self) -> QueuePolicy:
        """The policy of a queue that this face makes."""
        return _UPSTREAM if self.upstream else _SEED


# instants


show_time = instants.text_or_none
"""`2026-11-15T18:47:13.668185Z`."""


def parse_time(text: object, what: str, *, end_of_day: bool = False) -> int:
    """Microseconds since 1970 of an ISO instant, UTC where no zone is given. `end_of_day`: a date means all of it."""
    if not isinstance(text, str):
        raise BadInput(f"{what} must be an ISO timestamp, not {type(text).__name__}")
    try:
        moment = datetime.fromisoformat(with_plus(text.strip()) if "T" in text else text.strip())
    except ValueError:
        raise BadInput(f"{what} is not an ISO timestamp: {text!r:.60}") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    micros = (moment - _EPOCH) // timedelta(microseconds=1)
    if end_of_day and _DATE.fullmatch(text.strip()):
        micros += 24 * 3600 * MICROS - 1
    return instants.within(micros, what)


# queue options


DEFAULT_OPTIONS: dict[str, Any] = {
    "leaseTime": 300,
    "retryLimit": 3,
    "retryDelay": 0,
    "priority": 0,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "maxSize": 0,
    "ttl": 0,
    "retentionEnabled": False,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "maxWaitTimeSeconds": 0,
    "encryptionEnabled": False,
    "deadLetterQueue": True,
    "dlqAfterMaxRetries": True,
    "dedupWindowSeconds": 7 * 24 * 3600,
}
"""Every option that is shown, with what it is when nobody set it."""


def options_of(info: QueueInfo) -> dict[str, Any]:
    """A queue's options: those that were set as they were set, the others as the engine has them."""
    policy = msgspec.convert(info.policy, QueuePolicy)
    in_force = {
        "leaseTime": _whole(policy.lease_seconds),
        "retryLimit": policy.retry_limit,
        "delayedProcessing": _whole(policy.delay_seconds),
        "windowBuffer": _whole(policy.window_seconds),
        "maxWaitTimeSeconds": _whole(policy.max_wait_seconds or 0),
        "dedupWindowSeconds": _whole(policy.dedupe_seconds),
    }
    return {**DEFAULT_OPTIONS, **in_force, **dict(policy.notes)}


def _whole(seconds: float) -> float | int:
    return int(seconds) if seconds == int(seconds) else seconds


def policy_changes(options: dict[str, Any], stored: dict[str, Any], words: Words) -> dict[str, Any]:
    """What an options object changes of a policy. `stored` are the options that stay where none is given.

    Null puts an option back to its default; an option nobody knows is left out, as upstream does.
    """
    wanted = {
        name: DEFAULT_OPTIONS[name] if value is None else value
        for name, value in options.items()
        if name in DEFAULT_OPTIONS
    }
    for name, value in wanted.items():
        _check_option(name, value)
    both = {**stored, **wanted}
    changes: dict[str, Any] = {"notes": {name: wanted[name] for name in wanted if name not in _IN_FORCE}}
    for name in wanted:
        changes.update(_meaning(name, both, words))
    return changes


_IN_FORCE = ("leaseTime", "retryLimit", "delayedProcessing", "windowBuffer", "maxWaitTimeSeconds", "dedupWindowSeconds")


def _check_option(name: str, value: object) -> None:
    if isinstance(DEFAULT_OPTIONS[name], bool):
        if not isinstance(value, bool):
            raise BadInput(f"{name} must be true or false, not {value!r:.40}")
    elif isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise BadInput(f"{name} must be a number from 0 up, not {value!r:.40}")
    elif name in ("retryLimit", "priority", "maxSize") and value != int(value):
        raise BadInput(f"{name} must be a whole number, not {value!r:.40}")


def _meaning(name: str, options: dict[str, Any], words: Words) -> dict[str, Any]:
    """What one option means to the engine, given all of them."""
    value = options[name]
    match name:
        case "leaseTime":
            return {"lease_seconds": float(value) or _NO_LEASE_TIME}
        case "retryLimit":
            return {"retry_limit": int(value)}
        case "delayedProcessing":
            return {"delay_seconds": float(value)}
        case "windowBuffer":
            return {"window_seconds": float(value)}
        case "maxWaitTimeSeconds":
            return {"max_wait_seconds": float(value) or None}
        case "dedupWindowSeconds":
            return {"dedupe_seconds": float(value)}
        case "retryDelay" if not words.upstream:
            return {"backoff": Backoff("fixed", value / 1000) if value else Backoff()}
        case "deadLetterQueue" | "dlqAfterMaxRetries":
            return {"dead_letters": options["deadLetterQueue"] or options["dlqAfterMaxRetries"]}
        case "retentionEnabled" | "retentionSeconds" | "completedRetentionSeconds":
            enabled = options["retentionEnabled"]
            return {
                "retention_seconds": float(options["retentionSeconds"]) or None if enabled else None,
                "completed_retention_seconds": float(options["completedRetentionSeconds"]) or None if enabled else None,
            }
    return {}
