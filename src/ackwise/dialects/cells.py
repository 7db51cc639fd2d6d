"""What a claim brought, column by column, as faces that speak JSON show it. Payloads are copied as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ackwise.broker.handing import Run
from ackwise.core import ids
from ackwise.core.messages import Extras
from ackwise.core.native import payloads
from ackwise.dialects.http import encode

_extras = msgspec.json.Decoder(Extras).decode
_PLAIN = Extras()


class Cells(NamedTuple):
    """The messages of a run, column by column: `texts` are their payloads in JSON, `extras` None when none has any."""

    numbers: list[int]
    counted: bool
    """Whether the ids count up from the first."""
    txids: list[str]
    texts: list[bytes]
    extras: list[Extras] | None

    @property
    def message_ids(self) -> list[str]:
        if self.counted:
            return ids.uuid_texts(self.numbers[0], len(self.numbers))
        return list(map(ids.uuid_text, self.numbers))

    def transaction_ids(self, message_ids: list[str]) -> list[str]:
        """A message that was given none goes by its own id."""
        return [txid or own for txid, own in zip(self.txids, message_ids, strict=True)]


def cells(run: Run) -> Cells:
    numbers, txids, found, packed = run.segment.cells(run.lo, run.hi)
    first, size = numbers[0], len(numbers)
    counted = numbers[-1] - first == size - 1 and numbers == list(range(first, first + size))
    if packed is None and payloads.are_json(found):
        return Cells(numbers, counted, txids, found, None)
    given = [_extras(one) if one else _PLAIN for one in packed or [b""] * size]
    shown = [payloads.shown(one, extra.content_type) for one, extra in zip(found, given, strict=True)]
    extras = [Extras(extra.headers, kind) for extra, (_, kind) in zip(given, shown, strict=True)]
    return Cells(numbers, counted, txids, [text for text, _ in shown], extras)


def created(found: Cells, run: Run) -> list[int]:
    """When each was pushed. Ids that count up were minted together."""
    stored_at = run.segment.created_at
    if found.counted:
        return [min(stored_at, ids.minted_at(found.numbers[0]))] * len(found.numbers)
    return [min(stored_at, ids.minted_at(number)) for number in found.numbers]


def listed(texts: Iterable[str]) -> list[bytes]:
    """Texts without a line break as bytes, all in one go."""
    return "\n".join(texts).encode().split(b"\n")


def quoted(texts: Sequence[str]) -> list[str]:
    """Texts as JSON strings; most need nothing but quotes."""
    joined = "".join(texts)
    if joined.isascii() and joined.isprintable() and '"' not in joined and "\\" not in joined:
        return [f'"{text}"' for text in texts]
    return [encode(text).decode() for text in texts]
