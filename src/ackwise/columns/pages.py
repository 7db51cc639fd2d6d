"""Pages of stored messages: ranges of lanes, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ackwise.columns import texts
from ackwise.columns.texts import Numbers
from ackwise.core.messages import JSON, Extras
from ackwise.core.native import payloads

PAGE = 8192
"""Messages read at once: a page is a few megabytes, and a task begins its work with the first."""

STORED: dict[str, pa.DataType] = {
    "message_id": pa.string(),
    "transaction_id": pa.string(),
    "payload": pa.string(),
    "headers": pa.map_(pa.string(), pa.string()),
    "content_type": pa.string(),
    "created_at": pa.timestamp("us", tz="UTC"),
}
"""What is known of a message wherever it is read."""

Range = tuple[int, int, int]
"""(lane, lo, hi)"""

_extras = msgspec.json.Decoder(Extras).decode
_PLAIN = Extras()


class PackedMessages(Protocol):
    """A segment, as far as columns need it."""

    first: int
    last: int
    created_at: int

    @property
    def counts_up(self) -> bool: ...

    def id_int(self, seq: int) -> int: ...

    def packed_ids(self, lo: int, hi: int) -> bytes: ...

    def packed(self, column: str, lo: int, hi: int) -> tuple[bytes, memoryview] | None: ...


class Piece(NamedTuple):
    """Messages [lo, hi) of one segment."""

    segment: PackedMessages
    lo: int
    hi: int


class Page(NamedTuple):
    """Messages of one lane in the order of their seqs, and those of their columns that were asked for."""

    lane: int
    seqs: Numbers
    columns: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(self.seqs)


class Shelf(Protocol):
    """Where stored messages can be read as columns."""

    def pages(self, ranges: Iterable[Range], wanted: Sequence[str]) -> Iterator[Page]: ...


class Stored:
    """A shelf over a store in this process; `read` brings the segments behind ranges."""

    def __init__(self, read: Callable[[Sequence[Range]], Sequence[Sequence[PackedMessages]]]) -> None:
        self._read = read

    def pages(self, ranges: Iterable[Range], wanted: Sequence[str]) -> Iterator[Page]:
        for lane, lo, hi in ranges:
            for at in range(lo, hi, PAGE):
                end = min(hi, at + PAGE)
                (segments,) = self._read([(lane, at, end)])
                found = [Piece(one, max(at, one.first), min(end, one.last + 1)) for one in segments]
                if found:
                    yield page(lane, found, wanted)


def stream(found: Iterable[Page], wanted: Sequence[str]) -> bytes:
    """Pages as one Arrow stream: their columns, and where each message is."""
    fields = [pa.field("lane", pa.int64()), pa.field("seq", pa.int64())]
    schema = pa.schema([*fields, *(pa.field(name, STORED[name]) for name in wanted)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for one in found:
            places = [pa.repeat(pa.scalar(one.lane, pa.int64()), len(one)), pa.array(one.seqs, pa.int64())]
            writer.write_batch(pa.record_batch([*places, *(one.columns[name] for name in wanted)], schema=schema))
    return bytes(sink.getvalue().to_pybytes())


def page(lane: int, pieces: Sequence[Piece], wanted: Sequence[str]) -> Page:
    seqs = np.concatenate([np.arange(piece.lo, piece.hi) for piece in pieces])
    maker = _Maker(pieces)
    return Page(lane, seqs, {name: getattr(maker, name)() for name in wanted})


class _Maker:
    """The columns of one page. Ids and extras serve several of them."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._count = sum(piece.hi - piece.lo for piece in pieces)
        self._numbers: Numbers | None = None
        self._ids: pa.Array | None = None
        self._given: list[Extras] | None = None
        self._shown: tuple[pa.Array, list[str] | None] | None = None

    def _id_numbers(self) -> Numbers:
        if self._numbers is None:
            self._numbers = np.concatenate([_numbers(piece) for piece in self._pieces])
        return self._numbers

    def message_id(self) -> pa.Array:
        if self._ids is None:
            self._ids = texts.uuids(self._id_numbers())
        return self._ids

    def transaction_id(self) -> pa.Array:
        """A message that was given none goes by its own id."""
        found, lengths = texts.cells(self._packed("txid"), pa.string())
        if not lengths.any():
            return self.message_id()
        return found if lengths.all() else pc.if_else(pa.array(lengths > 0), found, self.message_id())

    def created_at(self) -> pa.Array:
        """When each was pushed: its id knows, where a delay kept it out of its lane until later."""
        pushed = []
        for piece in self._pieces:
            minted = texts.minted_at(_numbers(piece, 1 if piece.segment.counts_up else None))
            pushed.append(np.minimum(np.broadcast_to(minted, piece.hi - piece.lo), piece.segment.created_at))
        return pa.array(np.concatenate(pushed), pa.timestamp("us")).cast(STORED["created_at"])

    def payload(self) -> pa.Array:
        return self._texts()[0]

    def content_type(self) -> pa.Array:
        kinds = self._texts()[1]
        return pa.repeat(pa.scalar(JSON), self._count) if kinds is None else pa.array(kinds, pa.string())

    def headers(self) -> pa.Array:
        given = self._extras()
        if given is None:
            none = pa.array([], pa.string())
            return pa.MapArray.from_arrays(pa.array(np.zeros(self._count + 1, np.int32)), none, none)
        return pa.array([list(one.headers.items()) for one in given], STORED["headers"])

    def _packed(self, column: str) -> list[tuple[bytes, memoryview]]:
        found = [piece.segment.packed(column, piece.lo, piece.hi) for piece in self._pieces]
        return [one for one in found if one is not None]

    def _extras(self) -> list[Extras] | None:
        """None when no message here has headers or a content type of its own."""
        if self._given is None and len(self._packed("extras")):
            self._given = []
            for piece in self._pieces:
                packed = piece.segment.packed("extras", piece.lo, piece.hi)
                if packed is None:
                    self._given += [_PLAIN] * (piece.hi - piece.lo)
                else:
                    raw = texts.cells([packed], pa.binary())[0].to_pylist()
                    self._given += [_extras(one) if one else _PLAIN for one in raw]
        return self._given

    def _texts(self) -> tuple[pa.Array, list[str] | None]:
        """Payloads as text, and their content types unless all are JSON. What is no text is shown as `$base64`."""
        if self._shown is None:
            given = self._extras()
            found, _ = texts.cells(self._packed("payload"), pa.string())
            if given is None or all(one.content_type == JSON for one in given):
                try:
                    found.validate(full=True)
                    self._shown = found, None
                except pa.ArrowInvalid:
                    self._shown = _shown(found, [JSON] * self._count)
            else:
                self._shown = _shown(found, [one.content_type for one in given])
        return self._shown


def _shown(found: pa.Array, kinds: list[str]) -> tuple[pa.Array, list[str]]:
    binary = pa.large_binary() if pa.types.is_large_string(found.type) else pa.binary()
    cells = found.view(binary).to_pylist()
    pairs = [shown(cell, kind) for cell, kind in zip(cells, kinds, strict=True)]
    return pa.array([text.decode() for text, _ in pairs], found.type), [kind for _, kind in pairs]


def shown(payload: bytes, content_type: str) -> tuple[bytes, str]:
    """A payload as text, and its content type. What says that it is JSON is shown as it is, even where it is cut short:
    whoever reads it wants to see why."""
    if content_type == JSON:
        try:
            payload.decode()
            return payload, JSON
        except UnicodeDecodeError:
            pass
    return payloads.shown(payload, content_type)


def _numbers(piece: Piece, most: int | None = None) -> Numbers:
    """The ids of a piece (of its first `most`) as 16 bytes each."""
    count = piece.hi - piece.lo if most is None else most
    if piece.segment.counts_up:
        return texts.counted_ids(piece.segment.id_int(piece.lo), count)
    packed = piece.segment.packed_ids(piece.lo, piece.lo + count)
    return np.frombuffer(packed, np.uint8).reshape(count, 16)
