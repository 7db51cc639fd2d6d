"""What a chain of calls has said so far, and queue options in Queen's words."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION

_SPELLINGS = {
    "lease_time": "lease_seconds",
    "max_wait_time_seconds": "max_wait_seconds",
    "dead_letter_queue": "dead_letters",
    "dlq_after_max_retries": "dead_letters",
    "delayed_processing": "delay_seconds",
    "window_buffer": "window_seconds",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Of one queue: where to take from, how much, and how to keep it."""

    queue: str
    group: str | None = None
    partition: str | None = None
    batch: int = 1
    concurrency: int = 1
    auto_ack: bool = False
    each: bool = False
    renew: bool = True
    renew_every: float | None = None
    lease: float | None = None
    wait: float = 20.0
    limit: int | None = None
    idle: float | None = None
    start: Literal["all", "new"] = "all"
    config: dict[str, Any] = {}

    @property
    def place(self) -> str:
        return DEFAULT_PARTITION if self.partition is None else self.partition


def policy(config: dict[str, Any]) -> dict[str, Any]:
    """Fields of a queue's policy, from our own names or Queen's."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        ours = _SPELLINGS.get(name, name)
        if found.get(ours, value) != value:
            raise BadInput(f"{name}={value!r} contradicts another option that means the same")
        found[ours] = value
    return found
