"""Versions of stored objects. If a change names a version and the object has another version, the change is refused."""

from __future__ import annotations

import hashlib

import msgspec

from ackwise.core.answers import QueueInfo
from ackwise.core.errors import PreconditionFailed
from ackwise.core.policy import GroupPolicy

ANY = "*"
"""The object must exist. It may have any version."""
_SIZE = 10
"""Bytes of a version."""


def queue_version(info: QueueInfo) -> str:
    """Version of a queue. It changes with the queue's policy, namespace, task and pause."""
    return _digest(info.id, info.namespace, info.task, info.policy, info.paused)


def group_version(number: int, policy: GroupPolicy, start: tuple[str, int | None], seeks: int) -> str:
    """Version of a group. It changes with the group's policy, its start and each seek, not with its progress."""
    return _digest(number, policy, start, seeks)


def check_version(version: str | msgspec.UnsetType, current: str, what: str) -> None:
    """Raise `PreconditionFailed` if the object has another version."""
    if version is not msgspec.UNSET and version not in (ANY, current):
        raise PreconditionFailed(f"{what} has another version; read it again before you change it", version=current)


def _digest(*values: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(values, order="sorted"), digest_size=_SIZE).hexdigest()
