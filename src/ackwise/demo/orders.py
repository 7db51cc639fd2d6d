"""Orders of the demo, and the function that bills them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ackwise.client import Item
from ackwise.core.settlement import Reject

if TYPE_CHECKING:
    from ackwise.spark.pipelines import Record

MESSAGES = 20_000
PARTITIONS = 16
POISON = 0.01
FLAKY = 0.01
KILLERS = 5
"""Number of bad orders that kill their process. The other bad orders are truncated or cannot be billed."""
RATES = {"EUR": 100, "USD": 92, "GBP": 117}


def orders(count: int, seed: int) -> Iterator[Item]:
    """Generate `count` orders. Exactly 1 % never succeed, for one of three reasons. 1 % need several attempts."""
    dice = random.Random(seed)  # noqa: S311
    poison = round(count * POISON)
    unlucky = dice.sample(range(count), min(count, poison + round(count * FLAKY)))
    bad, flaky = {number: at for at, number in enumerate(unlucky[:poison])}, set(unlucky[poison:])
    for number in range(count):
        order: dict[str, Any] = {
            "order": number,
            "customer": f"customer-{dice.randrange(5000)}",
            "amount": dice.randrange(100, 100_000),
            "currency": dice.choice(sorted(RATES)),
        }
        if number in flaky:
            order["timeouts"] = dice.choice((1, 1, 2))
        yield _item(number, _spoiled(order, bad[number]) if number in bad else order)


def _item(number: int, order: dict[str, Any] | bytes) -> Item:
    return Item(
        payload=order,
        content_type="application/json",
        partition=f"shop-{number % PARTITIONS:02}",
        transaction_id=f"order-{number}",
    )


def _spoiled(order: dict[str, Any], at: int) -> dict[str, Any] | bytes:
    if at < KILLERS:
        order["customer"] = "segfault"
    elif at % 2:
        return f'{{"order":{order["order"]},"amount":'.encode()
    elif at % 4:
        order["currency"] = "XBT"
    else:
        del order["amount"]
    return order


def bill(order: dict[str, Any], record: Record) -> dict[str, Any]:
    """Make an order's invoice. Its exceptions decide the outcome of the order."""
    if order["customer"] == "segfault":
        os._exit(139)
    if "amount" not in order:
        raise ValueError(f"order {order['order']} has no amount")
    if order["currency"] not in RATES:
        raise Reject(f"order {order['order']}: no rate for currency {order['currency']}")
    if record.attempt <= order.get("timeouts", 0):
        raise TimeoutError("the payment service did not answer")
    return {"order": order["order"], "cents": order["amount"] * RATES[order["currency"]] // 100}
