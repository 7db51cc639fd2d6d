"""Messages as they go in (`NewMessage`), as they are stored (`Message`) and as they are handed out (`Delivered`)."""

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
    priority: int = 0

    @classmethod
    def of(cls, messages: Sequence[NewMessage]) -> PlainBatch | None:
        """None unless all go to one lane and none has an option: one pass over what is nearly always so."""
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
    """Where messages are packed; each part of one is read when it is looked at."""

    def id_int(self, seq: int) -> int: ...

    def txid(self, seq: int) -> str: ...

    def payload(self, seq: int) -> bytes: ...

    def extras(self, seq: int) -> Extras: ...


class Extras(msgspec.Struct, omit_defaults=True, frozen=True):
    """What few messages have."""

    headers: dict[str, str] = {}
    content_type: str = JSON


class Message:
    """A stored message and its place."""

    __slots__ = ("_source", "_stored_at", "lane", "seq")

    def __init__(self, source: MessageSource, lane: int, seq: int, stored_at: int) -> None:
        self._source, self.lane, self.seq, self._stored_at = source, lane, seq, stored_at

    @property
    def created_at(self) -> int:
        """When it was pushed: its id knows, where a delay kept it out of its lane until later."""
        return min(self._stored_at, ids.minted_at(self._source.id_int(self.seq)))

    @property
    def id_int(self) -> int:
        return self._source.id_int(self.seq)

    @property
    def id(self) -> str:
        return ids.uuid_text(self._source.id_int(self.seq))

    @property
    def txid(self) -> str:
        """The transaction id as it was given, "" when none was."""
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
