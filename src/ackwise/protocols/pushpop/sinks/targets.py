"""Target of a sink: URL, concurrency and lock time, stored with its queue."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ackwise.core.answers import QueueInfo
from ackwise.core.errors import BadInput
from ackwise.core.structs import prepare_types
from ackwise.core.validation import is_loopback
from ackwise.protocols.pushpop import vocabulary
from ackwise.protocols.pushpop.vocabulary import whole

MOST_AT_ONCE = 100
LONGEST_URL = 2000
_NOTE = "pushpop_sink_"


class SinkTarget(msgspec.Struct, frozen=True):
    """Where and how a sink posts."""

    url: str
    max_concurrency: int = 5
    lock_ttl_seconds: int = vocabulary.DEFAULT_TTL


def read(body: dict[str, Any], allowed: Collection[str]) -> SinkTarget:
    """The checked target of a registration."""
    defaults = SinkTarget("")
    target = SinkTarget(
        _checked_url(body.get("url"), allowed),
        whole(body.get("max_concurrency", defaults.max_concurrency), "max_concurrency", 1, MOST_AT_ONCE),
        whole(
            body.get("lock_ttl_seconds", defaults.lock_ttl_seconds),
            "lock_ttl_seconds",
            vocabulary.SHORTEST_TTL,
            vocabulary.LONGEST_TTL,
        ),
    )
    return target


def _checked_url(url: object, allowed: Collection[str]) -> str:
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
    """Whether the URL's host is a loopback name or an allowed host. Asks no DNS, whose answer may change."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        return False
    return is_loopback(host) or host in allowed or f"{host}:{port}" in allowed


def notes(target: SinkTarget | None) -> dict[str, Any]:
    """The target as notes of the queue's policy, where it survives a restart."""
    fields = dict.fromkeys(SinkTarget.__struct_fields__) if target is None else msgspec.structs.asdict(target)
    return {f"{_NOTE}{name}": value for name, value in fields.items()}


def stored_target(info: QueueInfo) -> SinkTarget | None:
    """The target in a queue's notes."""
    all_notes: Any = info.policy.get("notes") or ()
    fields = {name.removeprefix(_NOTE): value for name, value in all_notes if name.startswith(_NOTE)}
    try:
        return msgspec.convert(fields, SinkTarget) if fields else None
    except msgspec.ValidationError:
        return None


prepare_types(SinkTarget)
