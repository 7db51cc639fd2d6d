"""`NewMessage`, `PlainBatch`, `Message`, `Extras`."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from ackwise.core import ids

JSON = "application/json"
QUEUE_MODE = "__QUEUE_MODE__"
DEFAULT_PARTITION = "Default"


class NewMessage(msgspec.Struct):
    """A message to push. `delay` is in microseconds."""

    payload: bytes
    partition: str = DEFAULT_PARTITION
    priority: int = 0
    transaction_id: str | None = None
    headers: dict[str, str] | None = None
    content_type: str = JSON
    delay: int = 0


class PlainBatch(msgspec.Struct):
    """Messages for one lane, with one content type and no other options, as columns. The cheapest form to push."""

    payloads: list[bytes]
    transaction_ids: list[str] | None = None
    partition: str = DEFAULT_PARTITION
    content_type: str = JSON
    priority: int = 0

    @classmethod
    def of(cls, messages: Sequence[NewMessage]) -> PlainBatch | None:
        """The messages as one batch. None if they go to several lanes or one has options."""
        if not messages:
            return None
        partition, kind, priority = messages[0].partition, messages[0].content_type, messages[0].priority
        txids: list[str] = []
        payloads: list[bytes] = []
        for m in messages:
            if m.priority != priority or m.delay or m.headers or m.partition != partition or m.content_type != kind:
                return None
            if m.transaction_id == "":
                return None
            txids.append(m.transaction_id or "")
            payloads.append(m.payload)
        return cls(payloads, txids if any(txids) else None, partition, kind, priority)

    def __len__(self) -> int:
        return len(self.payloads)

    def messages(self) -> list[NewMessage]:
        txids: Sequence[str | None] = self.transaction_ids or [None] * len(self.payloads)
        return [
            NewMessage(payload, self.partition, self.priority, txid, None, self.content_type)
            for payload, txid in zip(self.payloads, txids, strict=True)
        ]


class MessageSource(Protocol):
    """Packed messages. Unpacks a part of a message on access."""

    def id_int(self, seq: int) -> int: ...

    def txid(self, seq: int) -> str: ...

    def payload(self, seq: int) -> bytes: ...

    def extras(self, seq: int) -> Extras: ...


class Extras(msgspec.Struct, omit_defaults=True, frozen=True):
    """Optional parts of a message that few messages have."""

    headers: dict[str, str] = {}
    content_type: str = JSON


class Message:
    """A stored message with its lane and seq."""

    __slots__ = ("_source", "_stored_at", "lane", "seq")

    def __init__(self, source: MessageSource, lane: int, seq: int, stored_at: int) -> None:
        self._source, self.lane, self.seq, self._stored_at = source, lane, seq, stored_at

    @property
    def created_at(self) -> int:
        """When the message was pushed. For a delayed message the id tells, because it was stored later."""
        return min(self._stored_at, ids.minted_at(self._source.id_int(self.seq)))

    @property
    def id_int(self) -> int:
        return self._source.id_int(self.seq)

    @property
    def id(self) -> str:
        return ids.uuid_text(self._source.id_int(self.seq))

    @property
    def txid(self) -> str:
        """The transaction id that the producer gave, or ""."""
        return self._source.txid(self.seq)

    @property
    def transaction_id(self) -> str:
        return self._source.txid(self.seq) or self.id

    @property
    def payload(self) -> bytes:
        return self._source.payload(self.seq)

    @property
    def headers(self) -> dict[str, str]:
        return dict(self._source.extras(self.seq).headers)

    @property
    def content_type(self) -> str:
        return self._source.extras(self.seq).content_type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    def __hash__(self) -> int:
        return hash((self.lane, self.seq, self.id_int))

    def __repr__(self) -> str:
        return f"<Message {self.id} lane {self.lane} seq {self.seq}>"


_FIELDS = ("lane", "seq", "id_int", "txid", "payload", "headers", "content_type", "created_at")


class Receipt(msgspec.Struct, frozen=True):
    """Result of one pushed message: `queued`, `scheduled`, or `duplicate` with the ids of the first one."""

    status: str
    message_id: str
    transaction_id: str
    partition: str
    partition_id: str
    seq: int | None


def json_value(payload: bytes, content_type: str = JSON) -> Any:
    """The payload as a JSON value. Bytes that are not JSON become {"$base64": ...}."""
    if content_type == JSON:
        try:
            return json.loads(payload)
        except ValueError:
            pass
    return {"$base64": base64.b64encode(payload).decode()}
