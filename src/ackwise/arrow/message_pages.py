"""Stored messages as Arrow pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import NamedTuple, Protocol

import msgspec

from ackwise.core.extras import needed
from ackwise.core.lane_range import LaneRange
from ackwise.core.messages import JSON, Extras
from ackwise.wire import payloads

with needed("arrow", "ackwise.arrow"):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from ackwise.arrow import text_columns
    from ackwise.arrow.text_columns import Numbers

PAGE = 8192
"""Messages per page: a page is a few megabytes, and a task starts its work with the first page."""

PAGE_BYTES = 8 << 20
"""Bytes of the segments of a page. A page has at least one segment."""

STORED: dict[str, pa.DataType] = {
    "message_id": pa.string(),
    "transaction_id": pa.string(),
    "payload": pa.string(),
    "headers": pa.map_(pa.string(), pa.string()),
    "content_type": pa.string(),
    "created_at": pa.timestamp("us", tz="UTC"),
}
"""Columns of a stored message and their Arrow types."""

_extras = msgspec.json.Decoder(Extras).decode
_PLAIN = Extras()


class PackedMessages(Protocol):
    """The part of a segment's interface that the columns need."""

    first: int
    last: int
    created_at: int

    @property
    def counts_up(self) -> bool: ...

    def id_int(self, seq: int) -> int: ...

    def packed_ids(self, lo: int, hi: int) -> bytes: ...

    def packed(self, column: str, lo: int, hi: int) -> tuple[bytes, memoryview] | None: ...


class SegmentRange(NamedTuple):
    """Messages [lo, hi) of one segment."""

    segment: PackedMessages
    lo: int
    hi: int


class MessagePage(NamedTuple):
    """Messages of one lane, ordered by seq, as the requested columns."""

    lane: int
    seqs: Numbers
    columns: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(self.seqs)


class PageReader(Protocol):
    """Reads stored messages as pages."""

    def pages(self, ranges: Iterable[LaneRange], wanted: Sequence[str]) -> Iterator[MessagePage]:
        """Yield pages with the `wanted` columns of the messages in `ranges`."""
        ...


class SegmentStore(Protocol):
    """The part of a store's interface that the pages need."""

    def read(self, ranges: Sequence[LaneRange], room: int | None = None) -> Sequence[Sequence[PackedMessages]]: ...


class StorePageReader:
    """Reads pages from a store in this process. A page is bounded in messages and in bytes."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    def pages(self, ranges: Iterable[LaneRange], wanted: Sequence[str]) -> Iterator[MessagePage]:
        for lane, at, hi in ranges:
            while at < hi:
                end = min(hi, at + PAGE)
                (segments,) = self._store.read([LaneRange(lane, at, end)], PAGE_BYTES)
                pieces = [
                    SegmentRange(segment, max(at, segment.first), min(end, segment.last + 1)) for segment in segments
                ]
                if pieces:
                    yield build_page(lane, pieces, wanted)
                at = min(end, segments[-1].last + 1) if segments else end


def stream(pages: Iterable[MessagePage], wanted: Sequence[str]) -> Iterator[bytes]:
    """Encode pages as the pieces of one Arrow stream: lane and seq of each message, then the `wanted` columns."""
    fields = [pa.field("lane", pa.int64()), pa.field("seq", pa.int64())]
    schema = pa.schema([*fields, *(pa.field(name, STORED[name]) for name in wanted)])
    file = BytesIO()
    writer = pa.ipc.new_stream(file, schema)
    for page in pages:
        places = [pa.repeat(pa.scalar(page.lane, pa.int64()), len(page)), pa.array(page.seqs, pa.int64())]
        writer.write_batch(pa.record_batch([*places, *(page.columns[name] for name in wanted)], schema=schema))
        yield file.getvalue()
        file.seek(0)
        file.truncate()
    writer.close()
    yield file.getvalue()


def build_page(lane: int, pieces: Sequence[SegmentRange], wanted: Sequence[str]) -> MessagePage:
    """Build the page of some segment ranges of a lane."""
    seqs = np.concatenate([np.arange(piece.lo, piece.hi) for piece in pieces])
    columns = _PageColumns(pieces)
    return MessagePage(lane, seqs, {name: getattr(columns, name)() for name in wanted})


class _PageColumns:
    """Builds the columns of one page: one method per column. Several columns share the decoded ids and extras."""

    def __init__(self, pieces: Sequence[SegmentRange]) -> None:
        self._pieces = pieces
        self._count = sum(piece.hi - piece.lo for piece in pieces)
        self._numbers: Numbers | None = None
        self._ids: pa.Array | None = None
        self._decoded_extras: list[Extras] | None = None
        self._payload_texts: tuple[pa.Array, list[str] | None] | None = None

    def _id_numbers(self) -> Numbers:
        if self._numbers is None:
            self._numbers = np.concatenate([_numbers(piece) for piece in self._pieces])
        return self._numbers

    def message_id(self) -> pa.Array:
        if self._ids is None:
            self._ids = text_columns.uuids(self._id_numbers())
        return self._ids

    def transaction_id(self) -> pa.Array:
        """Transaction ids. A message that was pushed without one has its message id."""
        txids, lengths = text_columns.cells(self._packed("txid"), pa.string())
        if not lengths.any():
            return self.message_id()
        return txids if lengths.all() else pc.if_else(pa.array(lengths > 0), txids, self.message_id())

    def created_at(self) -> pa.Array:
        """Push times. The id of a delayed message holds its push time. The segment is younger."""
        pushed = []
        for piece in self._pieces:
            minted = text_columns.minted_at(_numbers(piece, 1 if piece.segment.counts_up else None))
            pushed.append(np.minimum(np.broadcast_to(minted, piece.hi - piece.lo), piece.segment.created_at))
        return pa.array(np.concatenate(pushed), pa.timestamp("us")).cast(STORED["created_at"])

    def payload(self) -> pa.Array:
        return self._texts()[0]

    def content_type(self) -> pa.Array:
        kinds = self._texts()[1]
        return pa.repeat(pa.scalar(JSON), self._count) if kinds is None else pa.array(kinds, pa.string())

    def headers(self) -> pa.Array:
        extras = self._extras()
        if extras is None:
            none = pa.array([], pa.string())
            return pa.MapArray.from_arrays(pa.array(np.zeros(self._count + 1, np.int32)), none, none)
        return pa.array([list(extra.headers.items()) for extra in extras], STORED["headers"])

    def _packed(self, column: str) -> list[tuple[bytes, memoryview]]:
        columns = [piece.segment.packed(column, piece.lo, piece.hi) for piece in self._pieces]
        return [packed for packed in columns if packed is not None]

    def _extras(self) -> list[Extras] | None:
        """Headers and content types. None if no message of the page has any of its own."""
        if self._decoded_extras is None and len(self._packed("extras")):
            self._decoded_extras = []
            for piece in self._pieces:
                packed = piece.segment.packed("extras", piece.lo, piece.hi)
                if packed is None:
                    self._decoded_extras += [_PLAIN] * (piece.hi - piece.lo)
                else:
                    raw = text_columns.cells([packed], pa.binary())[0].to_pylist()
                    self._decoded_extras += [_extras(cell) if cell else _PLAIN for cell in raw]
        return self._decoded_extras

    def _texts(self) -> tuple[pa.Array, list[str] | None]:
        """Payloads as text, and their content types. A binary payload becomes `$base64` JSON.

        The content types are None if all payloads are JSON.
        """
        if self._payload_texts is None:
            extras = self._extras()
            column, _ = text_columns.cells(self._packed("payload"), pa.string())
            if extras is None or all(extra.content_type == JSON for extra in extras):
                try:
                    column.validate(full=True)
                    self._payload_texts = column, None
                except pa.ArrowInvalid:
                    self._payload_texts = _as_texts(column, [JSON] * self._count)
            else:
                self._payload_texts = _as_texts(column, [extra.content_type for extra in extras])
        return self._payload_texts


def _as_texts(column: pa.Array, kinds: list[str]) -> tuple[pa.Array, list[str]]:
    """Convert a column of payloads cell by cell to texts and content types."""
    binary = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
    cells = column.view(binary).to_pylist()
    pairs = [payload_text(cell, kind) for cell, kind in zip(cells, kinds, strict=True)]
    return pa.array([text.decode() for text, _ in pairs], column.type), [kind for _, kind in pairs]


def payload_text(payload: bytes, content_type: str) -> tuple[bytes, str]:
    """A payload as text, and its content type.

    A payload that is declared as JSON stays as it is, even if it is invalid JSON: the reader sees what was stored.
    """
    if content_type == JSON:
        try:
            payload.decode()
            return payload, JSON
        except UnicodeDecodeError:
            pass
    return payloads.for_answer(payload, content_type)


def _numbers(piece: SegmentRange, most: int | None = None) -> Numbers:
    """The ids of a segment range, or of its first `most` messages, as 16 bytes each."""
    count = piece.hi - piece.lo if most is None else most
    if piece.segment.counts_up:
        return text_columns.counted_ids(piece.segment.id_int(piece.lo), count)
    packed = piece.segment.packed_ids(piece.lo, piece.lo + count)
    return np.frombuffer(packed, np.uint8).reshape(count, 16)
