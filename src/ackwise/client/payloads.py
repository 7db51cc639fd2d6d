"""Messages on their way in: what becomes bytes how."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from ackwise.core import limits
from ackwise.core.errors import BadInput
from ackwise.core.limits import Seconds
from ackwise.core.messages import DEFAULT_PARTITION, JSON, NewMessage, PlainBatch

BYTES = "application/octet-stream"
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One message of a `push_many` with options of its own; `partition` and `priority` default to the call's."""

    payload: object
    partition: str | None = None
    priority: int | None = None
    transaction_id: str | None = None
    headers: Mapping[str, str] | None = None
    delay: Seconds | None = None
    content_type: str | None = None


def new_message(
    payload: object,
    partition: str = DEFAULT_PARTITION,
    priority: int = 0,
    transaction_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    delay: Seconds | None = None,
    content_type: str | None = None,
) -> NewMessage:
    """Bytes go as they are, text with a content type of its own as UTF-8, everything else as JSON."""
    if isinstance(payload, bytes | bytearray | memoryview):
        body, content_type = bytes(payload), content_type or BYTES
    elif isinstance(payload, str) and content_type not in (None, JSON):
        body = _utf8(payload)
    else:
        body, content_type = as_json(payload), content_type or JSON
    if content_type == JSON:
        content_type = JSON  # The very object: the store takes a shorter way when it sees it.
    wait = 0 if delay is None else limits.micros(delay, "delay")
    return NewMessage(body, partition, priority, transaction_id, dict(headers) if headers else None, content_type, wait)


def new_messages(payloads: Iterable[object], partition: str, priority: int) -> list[NewMessage] | PlainBatch:
    """Columns where nothing has an option, which is cheapest; else message by message."""
    given = list(payloads)
    special = any(issubclass(kind, Item | bytes | bytearray | memoryview) for kind in set(map(type, given)))
    if given and priority == 0 and not special:
        return PlainBatch(_all_json(given), None, partition)
    return [
        _from_item(one, partition, priority) if isinstance(one, Item) else new_message(one, partition, priority)
        for one in given
    ]


def _from_item(item: Item, partition: str, priority: int) -> NewMessage:
    return new_message(
        item.payload,
        partition if item.partition is None else item.partition,
        priority if item.priority is None else item.priority,
        item.transaction_id,
        item.headers,
        item.delay,
        item.content_type,
    )


def _all_json(payloads: list[object]) -> list[bytes]:
    """All of them in one go; where one might be unwritable, one by one, so that the error says what is wrong."""
    try:
        bodies = list(map(_encode, payloads))
    except (TypeError, ValueError, OverflowError, RecursionError):
        bodies = []
    if len(bodies) < len(payloads) or b"null" in b" ".join(bodies):
        return [as_json(one) for one in payloads]
    return bodies


def as_json(payload: object) -> bytes:
    try:
        body = _encode(payload)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise BadInput(f"the payload cannot be written as JSON: {problem}") from None
    # The encoder writes NaN and the infinities as null; the walk is only worth it where a null came out.
    if b"null" in body and _unwritable(payload):
        raise BadInput("the payload cannot be written as JSON: it has a number that is not finite")
    return body


def _unwritable(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_unwritable, value.values()))
    return isinstance(value, list | tuple | set | frozenset) and any(map(_unwritable, value))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadInput("the payload must be valid Unicode (it has a lone surrogate)") from None
