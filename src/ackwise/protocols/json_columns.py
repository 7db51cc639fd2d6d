"""JSON columns: ids, payloads and headers of claimed messages, written run by run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ackwise.broker.deliveries import SegmentSlice
from ackwise.core import ids
from ackwise.core.messages import Extras
from ackwise.protocols.http_response import encode
from ackwise.wire import payloads, timestamps

_extras = msgspec.json.Decoder(Extras).decode
_PLAIN = Extras()


class AnswerColumns(NamedTuple):
    """Messages of a run, one list per column."""

    numbers: list[int]
    """Message ids as integers."""
    counted: bool
    """Whether the ids count up from the first."""
    txids: list[str]
    """Transaction ids. An empty text stands for the message's own id."""
    texts: list[bytes]
    """Payloads as JSON."""
    extras: list[Extras] | None
    """Headers and content types, or None if all messages are plain JSON without headers."""

    @property
    def message_ids(self) -> list[str]:
        if self.counted:
            return ids.uuid_texts(self.numbers[0], len(self.numbers))
        return list(map(ids.uuid_text, self.numbers))

    def transaction_ids(self, message_ids: list[str]) -> list[str]:
        """Transaction ids. A message without one is named by its own id."""
        return [txid or message_id for txid, message_id in zip(self.txids, message_ids, strict=True)]


def message_columns(run: SegmentSlice) -> AnswerColumns:
    """Reads the columns of a run from its segment."""
    numbers, txids, bodies, packed = run.segment.cells(run.lo, run.hi)
    first, size = numbers[0], len(numbers)
    counted = numbers[-1] - first == size - 1 and numbers == list(range(first, first + size))
    if packed is None and payloads.are_json(bodies):
        return AnswerColumns(numbers, counted, txids, bodies, None)
    stored = [_extras(extra) if extra else _PLAIN for extra in packed or [b""] * size]
    written = [payloads.for_answer(body, extra.content_type) for body, extra in zip(bodies, stored, strict=True)]
    extras = [Extras(extra.headers, kind) for extra, (_, kind) in zip(stored, written, strict=True)]
    return AnswerColumns(numbers, counted, txids, [text for text, _ in written], extras)


def created_times(columns: AnswerColumns, run: SegmentSlice) -> list[int]:
    """Time of each push. Ids that count up come from one push."""
    stored_at = run.segment.created_at
    if columns.counted:
        return [min(stored_at, ids.minted_at(columns.numbers[0]))] * len(columns.numbers)
    return [min(stored_at, ids.minted_at(number)) for number in columns.numbers]


class TextColumns(NamedTuple):
    """Columns of a run as JSON answers contain them."""

    message_ids: list[bytes]
    txids: list[str]
    """Transaction ids. A message without one is named by its own id."""
    quoted_txids: list[bytes]
    texts: list[bytes]
    """Payloads as JSON."""
    created: list[bytes]
    """Times of the pushes."""
    extras: list[Extras] | None


def text_columns(run: SegmentSlice) -> TextColumns:
    """Reads and encodes the columns of a run, with few calls for any number of messages."""
    columns = message_columns(run)
    message_ids = columns.message_ids
    txids, times = columns.transaction_ids(message_ids), created_times(columns, run)
    if columns.counted:
        created = [timestamps.text(times[0]).encode()] * len(times)
    else:
        created = encoded_texts(map(timestamps.text, times))
    quoted_txids = encoded_texts(quoted(txids))
    return TextColumns(encoded_texts(message_ids), txids, quoted_txids, columns.texts, created, columns.extras)


def encoded_texts(texts: Iterable[str]) -> list[bytes]:
    """Encodes texts without line breaks as UTF-8, with one call for all of them."""
    return "\n".join(texts).encode().split(b"\n")


def quoted(texts: Sequence[str]) -> list[str]:
    """Texts as JSON strings. Most texts need only quotes, so the escapes are computed only where needed."""
    joined = "".join(texts)
    if joined.isascii() and joined.isprintable() and '"' not in joined and "\\" not in joined:
        return [f'"{text}"' for text in texts]
    return [encode(text).decode() for text in texts]
