"""What columns must say, told message by message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from ackwise.arrow.message_pages import STORED, MessagePage, StorePageReader
from ackwise.core.lane_range import LaneRange
from ackwise.core.messages import JSON, Message, NewMessage
from ackwise.store.port import Store
from ackwise.wire import payloads

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]

PNG = NewMessage(b"\x89PNG", content_type="image/png", headers={"k": "v", "": "é"})
MIXED = [
    NewMessage(b'{"a": 1.0,  "b":[ ]}'),
    NewMessage('"é"'.encode(), transaction_id="mine"),
    NewMessage(b'"\xff"'),
    NewMessage(b'{"cut": ', headers={"why": "broken"}),
    NewMessage(b""),
    PNG,
    NewMessage(b"[1]", content_type="text/plain"),
    NewMessage(b"\xff\xfe", content_type="application/octet-stream", transaction_id="bytes"),
    NewMessage(b"7", headers={"only": "headers"}),
]
"""Messages of every kind: JSON, broken JSON, text, bytes, with and without headers."""


def told(message: Message) -> Row:
    """One row, from the message itself."""
    text, kind = _shown(message)
    return {
        "lane": message.lane,
        "seq": message.seq,
        "message_id": message.id,
        "transaction_id": message.transaction_id,
        "payload": text,
        "headers": list(message.headers.items()),
        "content_type": kind,
        "created_at": EPOCH + timedelta(microseconds=message.created_at),
    }


def _shown(message: Message) -> tuple[str, str]:
    """Text that says it is JSON is shown as it is, also where it is broken; what is no text at all never."""
    if message.content_type == JSON:
        try:
            return message.payload.decode(), JSON
        except UnicodeDecodeError:
            pass
    text, kind = payloads.for_answer(message.payload, message.content_type)
    return text.decode(), kind


def by_message(store: Store, ranges: Sequence[LaneRange]) -> list[Row]:
    rows = []
    for (_, lo, hi), segments in zip(ranges, store.read(ranges), strict=True):
        for one in segments:
            rows += [told(one.message(seq)) for seq in range(max(lo, one.first), min(hi, one.last + 1))]
    return rows


def by_column(store: Store, ranges: Sequence[LaneRange], wanted: Sequence[str] = tuple(STORED)) -> list[Row]:
    return spelled(StorePageReader(store).pages(ranges, wanted))


def spelled(pages: Iterable[MessagePage]) -> list[Row]:
    """Pages as rows; their columns must be of the promised types, and sound."""
    rows = []
    for page in pages:
        for name, column in page.columns.items():
            column.validate(full=True)
            assert column.type in (STORED[name], pa.large_string()), name
            assert len(column) == len(page), name
        cells = zip(*(column.to_pylist() for column in page.columns.values()), strict=True)
        rows += [
            {"lane": page.lane, "seq": int(seq), **dict(zip(page.columns, row, strict=True))}
            for seq, row in zip(page.seqs, cells, strict=True)
        ]
    return rows
