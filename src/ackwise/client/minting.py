"""Transaction ids for messages without one: a push with them can be repeated, and is done once."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from itertools import count

import msgspec

from ackwise.core.commands import Push
from ackwise.core.messages import PlainBatch, Receipt


class Mint:
    """Ids that nobody else makes."""

    def __init__(self) -> None:
        self._prefix, self._numbers = f"{secrets.token_urlsafe(12)}.", count()

    def __call__(self) -> str:
        return f"{self._prefix}{next(self._numbers)}"

    def made(self, transaction_id: str) -> bool:
        return transaction_id.startswith(self._prefix)

    def told(self, receipts: Iterable[Receipt]) -> list[Receipt]:
        """What became of a push that was repeated: a duplicate of our own making was queued by an earlier try."""
        return [
            msgspec.structs.replace(one, status="scheduled" if one.seq is None else "queued")
            if one.status == "duplicate" and self.made(one.transaction_id)
            else one
            for one in receipts
        ]


class Minted:
    """A push whose messages all have transaction ids."""

    def __init__(self, push: Push) -> None:
        mint = self.mint = Mint()
        messages = push.messages
        if isinstance(messages, PlainBatch):
            given = messages.transaction_ids or [""] * len(messages)
            self.transaction_ids = [txid or mint() for txid in given]
            messages = msgspec.structs.replace(messages, transaction_ids=self.transaction_ids)
        else:
            messages = [
                msgspec.structs.replace(one, transaction_id=mint()) if one.transaction_id is None else one
                for one in messages
            ]
            self.transaction_ids = []
        self.push = msgspec.structs.replace(push, messages=messages)
