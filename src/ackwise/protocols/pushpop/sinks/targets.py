"""Target of a sink: URL, concurrency and lock time, stored with its queue."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from ackwise.core.answers import QueueInfo
from ackwise.core.structs import prepare_types
from ackwise.protocols.post_targets import checked_url
from ackwise.protocols.pushpop import vocabulary
from ackwise.protocols.pushpop.vocabulary import whole

MOST_AT_ONCE = 100
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
        checked_url(body.get("url"), allowed),
        whole(body.get("max_concurrency", defaults.max_concurrency), "max_concurrency", 1, MOST_AT_ONCE),
        whole(
            body.get("lock_ttl_seconds", defaults.lock_ttl_seconds),
            "lock_ttl_seconds",
            vocabulary.SHORTEST_TTL,
            vocabulary.LONGEST_TTL,
        ),
    )
    return target


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
