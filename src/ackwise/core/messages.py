"""Messages as they go in (`NewMessage`), as they are stored (`Message`) and as they are handed out (`Delivered`)."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from ackwise.core import ids

JSON = "application/json"
QUEUE_MODE = "__QUEUE_MODE__"
DEFAULT_PARTITION = "Default"


class NewMessage(msgspec.Struct):
    """A message to push. `payload` is bytes; `delay` in microseconds."""

    payload: bytes
    partition: str = DEFAULT_PARTITION
    priority: int = 0
    transaction_id: str | None = None
    headers: dict[str, str] | None = None
    content_type: str = JSON
    delay: int = 0


class PlainBatch(msgspec.Struct):
    """Many messages of one kind for one partition, without options, as columns: the cheapest thing to push."""

    payloads: list[bytes]
    transaction_ids: list[str] | None = None
    partition: str = DEFAULT_PARTITION
    content_type: str = JSON

    def __len__(self) -> int:
        return len(self.payloads)

    def messages(self) -> list[NewMessage]:
        txids: Sequence[str | None] = self.transaction_ids or [None] * len(self.payloads)
        return [
            NewMessage(payload, self.partition, 0, txid, None, self.content_type)
            for payload, txid in zip(self.payloads, txids, strict=True)
        ]


class Message(msgspec.Struct, frozen=True):
    """A stored message and its place."""

    lane: int
    seq: int
    id_int: int
    txid: str
    payload: bytes
    headers: dict[str, str]
    content_type: str
    created_at: int

    @property
    def id(self) -> str:
        return ids.uuid_text(self.id_int)

    @property
    def transaction_id(self) -> str:
        return self.txid or self.id


class Receipt(msgspec.Struct, frozen=True):
    """What became of one pushed message: `queued`, `scheduled` or `duplicate` (then the ids are the first one's)."""

    status: str
    message_id: str
    transaction_id: str
    partition: str
    partition_id: str
    seq: int | None


def shown(payload: bytes, content_type: str = JSON) -> Any:
    """The payload for a face that speaks JSON: parsed, or {"$base64": ...} when it is not JSON."""
    if content_type == JSON:
        try:
            return json.loads(payload)
        except ValueError:
            pass
    return {"$base64": base64.b64encode(payload).decode()}
