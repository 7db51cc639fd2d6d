"""Queue and group policies as keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from ackwise.core.errors import BadInput
from ackwise.core.policy import Backoff, GroupPolicy, QueuePolicy

KNOWN = tuple(QueuePolicy.__struct_fields__)


def policy_fields(policy: QueuePolicy | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The changes a call asks for, checked here so that a typo says what is known."""
    unknown = sorted(set(fields) - set(KNOWN))
    if unknown:
        raise BadInput(f"unknown policy field {unknown[0]!r}; known: {', '.join(KNOWN)}")
    whole = {} if policy is None else msgspec.structs.asdict(policy)
    given = {name: _plain(value) for name, value in {**whole, **fields}.items()}
    QueuePolicy().merged(given)
    return given


def _plain(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return msgspec.to_builtins(value) if isinstance(value, Backoff) else value


def group_policy(retry_limit: object, backoff: object) -> GroupPolicy | None:
    """What a group does differently, or None when it does nothing differently."""
    given = {
        name: _plain(value)
        for name, value in (("retry_limit", retry_limit), ("backoff", backoff))
        if value is not msgspec.UNSET
    }
    if not given:
        return None
    try:
        return msgspec.convert(given, GroupPolicy).check()
    except msgspec.ValidationError as problem:
        raise BadInput(f"group policy: {problem}") from None
