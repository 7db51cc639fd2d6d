"""The made-up world of the demo: orders, some of them poison, and the handler that bills them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from ackwise.client import Delivery, Item
from ackwise.core.outcomes import Reject

PARTITIONS = 16
POISON = 0.02
FLAKY = 0.01
RATES = {"EUR": 100, "USD": 92, "GBP": 117}


def orders(count: int, seed: int) -> Iterator[Item]:
    """`count` orders; exactly 2 % are poison and never succeed, 1 % need more than one attempt."""
    dice = random.Random(seed)  # noqa: S311
    poison = round(count * POISON)
    unlucky = dice.sample(range(count), min(count, poison + round(count * FLAKY)))
    bad, flaky = set(unlucky[:poison]), set(unlucky[poison:])
    for number in range(count):
        order: dict[str, Any] = {
            "order": number,
            "customer": f"customer-{dice.randrange(5000)}",
            "amount": dice.randrange(100, 100_000),
            "currency": dice.choice(sorted(RATES)),
        }
        if number in flaky:
            order["timeouts"] = dice.choice((1, 1, 2))
        yield _item(number, _spoiled(order, dice) if number in bad else order)


def _item(number: int, order: dict[str, Any] | bytes) -> Item:
    return Item(
        payload=order,
        content_type="application/json",
        partition=f"shop-{number % PARTITIONS:02}",
        transaction_id=f"order-{number}",
    )


def _spoiled(order: dict[str, Any], dice: random.Random) -> dict[str, Any] | bytes:
    match dice.randrange(4):
        case 0:
            return f'{{"order":{order["order"]},"amount":'.encode()
        case 1:
            del order["amount"]
        case 2:
            order["amount"] *= -1
        case _:
            order["currency"] = "XBT"
    return order


def bill(delivery: Delivery) -> dict[str, Any]:
    """An order's invoice. What it raises decides what becomes of the order."""
    order = delivery.json()
    if "amount" not in order:
        raise ValueError("the order has no amount")
    if order["currency"] not in RATES:
        raise Reject(f"no rate for currency {order['currency']}")
    if order["amount"] < 0:
        raise Reject("the amount is negative")
    if delivery.failures < order.get("timeouts", 0):
        raise TimeoutError("the payment service did not answer")
    return {"order": order["order"], "cents": order["amount"] * RATES[order["currency"]] // 100}
