"""CloudEvents attributes in headers: written by publishers, tolerated when absent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from ackwise.subscriber.subscription import CloudEvents
from ackwise.subscriber.transport_delivery import Undecodable

VERSION = "1.0"
_REQUIRED = ("ce-specversion", "ce-type", "ce-source", "ce-id")


def attributes(kind: Any, source: str, content_type: str) -> dict[str, str]:
    """The CloudEvents headers of a new event."""
    return {
        "ce-specversion": VERSION,
        "ce-type": getattr(kind, "__qualname__", str(kind)),
        "ce-source": source,
        "ce-id": str(uuid4()),
        "ce-time": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "ce-datacontenttype": content_type,
    }


def check(headers: Mapping[str, str], mode: CloudEvents) -> None:
    """Raise `Undecodable` for an event of another version, and in mode `require` for a message without the headers."""
    if mode == "off":
        return
    if mode == "require":
        missing = [name for name in _REQUIRED if not headers.get(name)]
        if missing:
            raise Undecodable(f"not a CloudEvent: it has no {missing[0]}")
    version = headers.get("ce-specversion", VERSION)
    if version != VERSION:
        raise Undecodable(f"a CloudEvent of version {version}, not {VERSION}")
