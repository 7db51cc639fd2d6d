"""Options of a call chain."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import msgspec

from ackwise.core.commands import ByKey
from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION, QUEUE_MODE
from ackwise.wire.queen_options import DEFAULT_OPTIONS, policy_changes

_QUEENS = {"".join(f"_{c.lower()}" if c.isupper() else c for c in name): name for name in DEFAULT_OPTIONS}
"""Queen's options in snake case."""
_RETENTIONS = ("retention_seconds", "completed_retention_seconds")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options that a chain of calls has collected for one queue."""

    queue: str
    group: str | None = None
    partition: str | None = None
    batch: int = 1
    max_bytes: int | None = None
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
    def push_partition(self) -> str:
        """The partition that a push goes to."""
        return DEFAULT_PARTITION if self.partition is None else self.partition

    def by_key(self, key: str) -> ByKey:
        """Selector of the messages that the claim with this key holds."""
        return ByKey(self.queue, key, QUEUE_MODE if self.group is None else self.group)


def policy(config: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """Convert `config`, in Ackwise's or Queen's names, to fields of a queue's policy.

    `stored` are the Queen options of the existing queue.
    """
    # "Never" is None in Ackwise's options and 0 in Queen's: a value None is never Queen's.
    ours = {name: value for name, value in config.items() if name not in _QUEENS or value is None}
    queens = {_QUEENS[name]: _plain(name, value) for name, value in config.items() if name not in ours}
    changes = policy_changes(_with_retention(queens), stored)
    if queens.get("retentionEnabled") is not False:
        for name in _RETENTIONS:
            if name not in config:
                changes.pop(name, None)
    for name, value in ours.items():
        if changes.get(name, value) != value:
            raise BadInput(f"{name}={value!r} contradicts a Queen option for the same field; keep one of them")
    return {name: value for name, value in {**changes, **ours}.items() if name != "notes" or value}


def _with_retention(options: dict[str, Any]) -> dict[str, Any]:
    """Queen's options, with retention switched on if they have a retention time."""
    kept = any(name in options for name in map(_QUEENS.__getitem__, _RETENTIONS))
    return {"retentionEnabled": True, **options} if kept else options


def _plain(name: str, value: object) -> object:
    if not isinstance(value, timedelta):
        return value
    return value.total_seconds() * (1000 if name == "retry_delay" else 1)
