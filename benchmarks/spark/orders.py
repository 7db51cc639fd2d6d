"""Messages of the benchmark, and the function per message. All jobs use the same code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ackwise import Item, Reject

PARTITIONS = 16
POISON_EVERY = 100
NOTE = "n" * 120


def order(number: int) -> dict[str, Any]:
    """Make an order. One in a hundred can never be billed."""
    amount = -1 if number % POISON_EVERY == 7 else number % 9973
    return {"order": number, "amount": amount, "currency": "EUR", "note": NOTE}


def items(count: int) -> Iterator[Item]:
    for number in range(count):
        yield Item(payload=order(number), partition=f"p{number % PARTITIONS:02}", transaction_id=f"o{number}")


def bill(found: dict[str, Any]) -> dict[str, Any]:
    if found["amount"] < 0:
        raise Reject("the amount is negative")
    return {"order": found["order"], "cents": found["amount"] * 100}


def billed(text: str) -> str:
    """Bill an order that is JSON text. Returns JSON text."""
    return json.dumps(bill(json.loads(text)))
