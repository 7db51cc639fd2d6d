"""Queen's queue options and the policy they mean."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.core.errors import BadInput
from ackwise.core.policy import Backoff, QueuePolicy

_NO_LEASE_TIME = 60.0

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
"""Every option with its default."""


def options_of(stored: dict[str, object]) -> dict[str, Any]:
    """The options of a queue with this policy. Options without a policy field come from its notes."""
    policy = msgspec.convert(stored, QueuePolicy)
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


def policy_changes(options: dict[str, Any], stored: dict[str, Any], *, upstream: bool = False) -> dict[str, Any]:
    """Policy changes of an options object. `stored` are the present options.

    Null resets an option to its default. Unknown options are ignored, as in upstream Queen.
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
        changes.update(_meaning(name, both, upstream))
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


def _meaning(name: str, options: dict[str, Any], upstream: bool) -> dict[str, Any]:
    """Policy fields that the option `name` sets. The values of some fields also depend on other options."""
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
        case "retryDelay" if not upstream:
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
