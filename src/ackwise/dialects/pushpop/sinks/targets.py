"""Where a sink posts to, how much at once, and how that is kept with its queue."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ackwise.core.answers import QueueInfo
from ackwise.core.errors import BadInput
from ackwise.core.learning import learn
from ackwise.dialects.hosts import is_loopback
from ackwise.dialects.pushpop import words
from ackwise.dialects.pushpop.asking import whole

MOST_AT_ONCE = 100
LONGEST_URL = 2000
_NOTE = "pushpop_sink_"


class Target(msgspec.Struct, frozen=True):
    url: str
    max_concurrency: int = 5
    lock_ttl_seconds: int = words.DEFAULT_TTL


def read(body: dict[str, Any], allowed: Collection[str]) -> Target:
    """The target that a registration describes, all of it checked."""
    defaults = Target("")
    target = Target(
        _checked(body.get("url"), allowed),
        whole(body.get("max_concurrency", defaults.max_concurrency), "max_concurrency", 1, MOST_AT_ONCE),
        whole(
            body.get("lock_ttl_seconds", defaults.lock_ttl_seconds),
            "lock_ttl_seconds",
            words.SHORTEST_TTL,
            words.LONGEST_TTL,
        ),
    )
    return target


def _checked(url: object, allowed: Collection[str]) -> str:
    if not isinstance(url, str) or not url:
        raise BadInput("url is required")
    if len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise BadInput("url must be a plain http or https URL")
    if not may_post(url, allowed):
        raise BadInput(
            "url must be http or https on this machine, or on a host that the server allows (--pushpop-sink-host)"
        )
    return url


def may_post(url: str, allowed: Collection[str]) -> bool:
    """Loopback by its own name, or a host that was allowed; nothing is looked up that could mean another one later."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        return False
    return is_loopback(host) or host in allowed or f"{host}:{port}" in allowed


def notes(target: Target | None) -> dict[str, Any]:
    """As notes of the queue's policy: a sink survives the server."""
    fields = dict.fromkeys(Target.__struct_fields__) if target is None else msgspec.structs.asdict(target)
    return {f"{_NOTE}{name}": value for name, value in fields.items()}


def noted(info: QueueInfo) -> Target | None:
    """The target in a queue's notes."""
    listed: Any = info.policy.get("notes") or ()
    found = {name.removeprefix(_NOTE): value for name, value in listed if name.startswith(_NOTE)}
    try:
        return msgspec.convert(found, Target) if found else None
    except msgspec.ValidationError:
        return None


learn(Target)
