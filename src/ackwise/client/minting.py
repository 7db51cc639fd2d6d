"""Transaction ids for messages without one: a push with them can be repeated, and is done once."""

from __future__ import annotations

import secrets
from itertools import count

import msgspec

from ackwise.core.commands import Push
from ackwise.core.messages import PlainBatch, Receipt


class Minted:
    """A push whose messages all have transaction ids."""

    def __init__(self, push: Push) -> None:
        prefix, numbers = secrets.token_urlsafe(12), count()
        messages = push.messages
        self._ours = f"{prefix}."
        if isinstance(messages, PlainBatch):
            given = messages.transaction_ids or [""] * len(messages)
            self.transaction_ids = [txid or f"{prefix}.{next(numbers)}" for txid in given]
            messages = msgspec.structs.replace(messages, transaction_ids=self.transaction_ids)
        else:
            messages = [
                msgspec.structs.replace(one, transaction_id=f"{prefix}.{next(numbers)}")
                if one.transaction_id is None
                else one
                for one in messages
            ]
            self.transaction_ids = []
        self.push = msgspec.structs.replace(push, messages=messages)

    def told(self, receipts: list[Receipt]) -> list[Receipt]:
        """What became of a push that was repeated: a duplicate of our own making was queued by an earlier try."""
        return [
            msgspec.structs.replace(one, status="scheduled" if one.seq is None else "queued")
            if one.status == "duplicate" and one.transaction_id.startswith(self._ours)
            else one
            for one in receipts
        ]
