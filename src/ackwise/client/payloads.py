"""Encodes payloads as messages. Makes transaction ids so that a push can be repeated."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec

from ackwise.core import validation
from ackwise.core.commands import Push
from ackwise.core.errors import BadInput, UndecodablePayload
from ackwise.core.messages import DEFAULT_PARTITION, JSON, NewMessage, PlainBatch, Receipt
from ackwise.core.validation import Seconds

BYTES = "application/octet-stream"
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One message of a `push_many` call with its own options.

    `partition` and `priority` default to those of the call.
    """

    payload: object
    partition: str | None = None
    priority: int | None = None
    transaction_id: str | None = None
    headers: Mapping[str, str] | None = None
    delay: Seconds | None = None
    content_type: str | None = None


def decode_json(payload: bytes, kind: Any = Any) -> Any:
    """Decode a payload as JSON, into `kind`. Raises `UndecodablePayload`."""
    try:
        return msgspec.json.decode(payload, type=kind)
    except msgspec.ValidationError as problem:
        name = getattr(kind, "__name__", kind)
        raise UndecodablePayload(f"the payload does not fit {name}: {problem}") from None
    except msgspec.DecodeError as problem:
        raise UndecodablePayload(f"the payload is not JSON ({problem}); read its bytes with .payload") from None
    except RecursionError:
        raise UndecodablePayload("the payload is nested too deeply; read its bytes with .payload") from None
    except UnicodeDecodeError as problem:
        raise UndecodablePayload(f"the payload is not JSON ({problem.reason}); read its bytes with .payload") from None


def new_message(
    payload: object,
    partition: str = DEFAULT_PARTITION,
    priority: int = 0,
    *,
    transaction_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    delay: Seconds | None = None,
    content_type: str | None = None,
) -> NewMessage:
    """Build a message. Bytes stay as they are, text with a content type becomes UTF-8, all else becomes JSON."""
    if isinstance(payload, bytes | bytearray | memoryview):
        body, content_type = bytes(payload), content_type or BYTES
    elif isinstance(payload, str) and content_type not in (None, JSON):
        body = _utf8(payload)
    else:
        body, content_type = as_json(payload), content_type or JSON
    if content_type == JSON:
        content_type = JSON  # The same object: the store has a fast path for it.
    wait = 0 if delay is None else validation.micros(delay, "delay")
    return NewMessage(body, partition, priority, transaction_id, dict(headers) if headers else None, content_type, wait)


def new_messages(payloads: Iterable[object], partition: str, priority: int) -> list[NewMessage] | PlainBatch:
    """Build messages: columns if all are plain JSON without options, which is cheapest, else one by one."""
    items = list(payloads)
    special = any(issubclass(kind, Item | bytes | bytearray | memoryview) for kind in set(map(type, items)))
    if items and priority == 0 and not special:
        return PlainBatch(_all_json(items), None, partition)
    return [
        _from_item(item, partition, priority) if isinstance(item, Item) else new_message(item, partition, priority)
        for item in items
    ]


def _from_item(item: Item, partition: str, priority: int) -> NewMessage:
    return new_message(
        item.payload,
        partition if item.partition is None else item.partition,
        priority if item.priority is None else item.priority,
        transaction_id=item.transaction_id,
        headers=item.headers,
        delay=item.delay,
        content_type=item.content_type,
    )


def _all_json(payloads: list[object]) -> list[bytes]:
    """Encode payloads as JSON. If one may be invalid, encode one by one, so that the error names the cause."""
    try:
        bodies = list(map(_encode, payloads))
    except (TypeError, ValueError, OverflowError, RecursionError):
        bodies = []
    if len(bodies) < len(payloads) or b"null" in b" ".join(bodies):
        return [as_json(payload) for payload in payloads]
    return bodies


def as_json(payload: object) -> bytes:
    """Encode a payload as JSON. Raises `BadInput` if that is not possible."""
    try:
        body = _encode(payload)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise BadInput(f"the payload cannot be written as JSON: {problem}") from None
    # The encoder writes NaN and infinities as null. Search for them only if the result has a null.
    if b"null" in body and _has_non_finite(payload):
        raise BadInput("the payload cannot be written as JSON: it has a number that is not finite")
    return body


def _has_non_finite(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_has_non_finite, value.values()))
    return isinstance(value, list | tuple | set | frozenset) and any(map(_has_non_finite, value))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadInput("the payload must be valid Unicode (it has a lone surrogate)") from None


class TransactionIds:
    """Generates transaction ids with a random prefix, and recognises its own."""

    def __init__(self) -> None:
        self._prefix, self._numbers = f"{secrets.token_urlsafe(12)}.", count()

    def __call__(self) -> str:
        return f"{self._prefix}{next(self._numbers)}"

    def made(self, transaction_id: str) -> bool:
        """Whether this object generated the id."""
        return transaction_id.startswith(self._prefix)

    def as_first_push(self, receipts: Iterable[Receipt]) -> list[Receipt]:
        """Receipts of a repeated push as its first try would have returned them.

        A duplicate with a generated id was stored by an earlier try of the same push: its status becomes `queued` or
        `scheduled`.
        """
        return [
            msgspec.structs.replace(receipt, status="scheduled" if receipt.seq is None else "queued")
            if receipt.status == "duplicate" and self.made(receipt.transaction_id)
            else receipt
            for receipt in receipts
        ]


class IdempotentPush:
    """A push in which each message has a transaction id, so that the push can be repeated."""

    def __init__(self, push: Push) -> None:
        ids = self.ids = TransactionIds()
        messages = push.messages
        if isinstance(messages, PlainBatch):
            pushed_ids = messages.transaction_ids or [""] * len(messages)
            self.transaction_ids = [txid or ids() for txid in pushed_ids]
            messages = msgspec.structs.replace(messages, transaction_ids=self.transaction_ids)
        else:
            messages = [
                msgspec.structs.replace(message, transaction_id=ids()) if message.transaction_id is None else message
                for message in messages
            ]
            self.transaction_ids = []
        self.push = msgspec.structs.replace(push, messages=messages)
