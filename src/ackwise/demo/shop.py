"""The shop of `ackwise serve --demo`: its queues, its messages, and the work on them, which fails in several ways."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from ackwise.client import Item
from ackwise.core.policy import Backoff
from ackwise.core.settlement import Reject

Dice = random.Random  # noqa: S311 # no secret is made of it
Work = Callable[[dict[str, Any], Dice], None]
"""Works on a payload. An exception is a failure. `Reject` makes a dead letter at once."""

LABEL = "demo data"
CITIES = ("Amsterdam", "Bergen", "Coimbra", "Dresden", "Elche", "Faro", "Graz", "Haifa")
PRODUCTS = ("lamp", "kettle", "chair", "desk", "clock", "bowl")
_MAIL_HOST = "smtp.shop.example:587"


class Abandoned(Exception):
    """The consumer process died: it settles nothing, and its lease runs out."""


class CardDeclined(Reject):
    """The bank refuses the payment. Another attempt would not help."""


class Group(NamedTuple):
    """A consumer group: its workers, the seconds that one message takes, and its work."""

    name: str
    workers: tuple[str, ...]
    seconds: float
    work: Work


class Stage(NamedTuple):
    """A queue: its names, policy and relative rate, a function that makes its messages, and the groups that read it."""

    queue: str
    namespace: str
    task: str
    policy: dict[str, Any]
    rate: float
    make: Callable[[int, Dice], Item]
    groups: tuple[Group, ...]


def _item(payload: object, partition: str, transaction_id: str, **fields: Any) -> Item:
    return Item(payload=payload, partition=partition, transaction_id=transaction_id, **fields)


# messages


def order(number: int, dice: Dice) -> Item:
    items = [{"sku": dice.choice(PRODUCTS), "count": dice.randint(1, 4)} for _ in range(dice.randint(1, 3))]
    payload: dict[str, Any] = {
        "order": number,
        "customer": f"customer-{dice.randrange(4000)}",
        "city": dice.choice(CITIES),
        "items": items,
        "cents": dice.randrange(500, 90_000),
    }
    if dice.random() < 0.006:
        del items[0]["sku"]
    elif dice.random() < 0.004:
        payload["cents"] = f"{payload['cents'] / 100:.2f} EUR"
    headers = {"source": dice.choice(("web", "app", "phone")), "trace": f"{dice.getrandbits(64):016x}"}
    return _item(payload, f"shop-{number % 8:02}", f"order-{number}", headers=headers)


def payment(number: int, dice: Dice) -> Item:
    card = f"{dice.randrange(1000, 9999)}"
    payload = {"payment": number, "cents": dice.randrange(500, 90_000), "card": card, "declined": dice.random() < 0.02}
    return _item(payload, f"customer-{dice.randrange(40)}", f"payment-{number}", priority=int(dice.random() < 0.1))


def mail(number: int, dice: Dice) -> Item:
    template = dice.choice(("receipt", "welcome", "shipped", "reminder"))
    address = f"user{dice.randrange(9000)}@{'nowhere' if dice.random() < 0.02 else 'mail'}.example"
    delay = dice.choice((20, 90, 300)) if template == "reminder" else None
    return _item({"to": address, "template": template}, template, f"mail-{number}", delay=delay)


def picture(number: int, dice: Dice) -> Item:
    payload = {"path": f"uploads/{number}.jpg", "width": dice.choice((640, 1280, 4000))}
    if dice.random() < 0.015:
        payload["path"] = f"uploads/{number}.tiff"
    elif dice.random() < 0.006:
        payload["width"] = 0
    return _item(payload, f"bucket-{number % 4}", f"picture-{number}")


def event(number: int, dice: Dice) -> Item:
    kind = dice.choice(("login", "logout", "view", "search", "basket"))
    return _item({"event": kind, "user": dice.randrange(4000)}, f"node-{dice.randrange(6)}", f"event-{number}")


def report(number: int, dice: Dice) -> Item:
    return _item({"report": dice.choice(("sales", "stock")), "day": number}, "nightly", f"report-{number}")


# work


def bill(order: dict[str, Any], dice: Dice) -> None:
    """Write the invoice of an order."""
    if not isinstance(order["cents"], int):
        raise TypeError(f"order {order['order']}: cents must be a whole number, not {order['cents']!r}")
    if dice.random() < 0.02:
        raise TimeoutError("the invoice service did not answer within 3 s")


def ship(order: dict[str, Any], dice: Dice) -> None:
    """Reserve the products of an order."""
    for item in order["items"]:
        reserve(item["sku"], item["count"], dice)


def reserve(sku: str, count: int, dice: Dice) -> None:
    if sku == "clock" and count == 4 and dice.random() < 0.3:
        raise LookupError(f"no warehouse has {count} of {sku!r}")


def charge(payment: dict[str, Any], dice: Dice) -> None:
    """Charge a card."""
    if payment["declined"]:
        raise CardDeclined(f"payment {payment['payment']}: the bank declined card {payment['card']}")
    if dice.random() < 0.1:
        raise ConnectionError("the bank closed the connection")


def send_mail(mail: dict[str, Any], dice: Dice) -> None:
    """Send a mail."""
    if mail["to"].endswith("@nowhere.example"):
        raise Reject(f"550 no such mailbox: {mail['to']}")
    if dice.random() < 0.08:
        raise ConnectionRefusedError(111, f"Connection refused: {_MAIL_HOST}")


def resize(picture: dict[str, Any], dice: Dice) -> None:
    """Make a thumbnail."""
    if picture["path"].endswith(".tiff"):
        raise Abandoned
    picture["height"] = 480 * 640 // picture["width"]


def archive(event: dict[str, Any], dice: Dice) -> None:
    """Keep an event."""


def alert(event: dict[str, Any], dice: Dice) -> None:
    """Look for strange logins."""
    if event["event"] == "login" and dice.random() < 0.01:
        raise RuntimeError(f"rule 'two cities' needs the city of user {event['user']}")


STAGES = (
    Stage(
        "shop/orders", "shop", "checkout",
        {"retry_limit": 3, "backoff": Backoff("exponential", seconds=4, cap=60)},
        1.2, order,
        (Group("billing", ("billing-1", "billing-2"), 0.5, bill), Group("shipping", ("shipping-1",), 0.6, ship)),
    ),
    Stage(
        "shop/payments", "shop", "payment",
        {"retry_limit": 2, "lease_seconds": 20.0, "exclusivity": "partition", "backoff": Backoff("fixed", seconds=15)},
        0.8, payment,
        (Group("gateway", ("gateway-1", "gateway-2", "gateway-3"), 1.0, charge),),
    ),
    Stage(
        "mail/outgoing", "mail", "send",
        {"retry_limit": 3, "backoff": Backoff("schedule", delays=(10.0, 45.0))},
        0.6, mail,
        (Group("senders", ("sender-1", "sender-2"), 0.8, send_mail),),
    ),
    Stage(
        "media/thumbnails", "media", "resize",
        {"retry_limit": 4, "delivery_limit": 3, "lease_seconds": 15.0},
        0.5, picture,
        (Group("resizers", ("resizer-1", "resizer-2"), 2.0, resize),),
    ),
    Stage(
        "audit/events", "audit", "log", {"retry_limit": 1}, 2.5, event,
        (Group("archive", ("archive-1",), 0.2, archive), Group("alerts", ("alerts-1",), 1.2, alert)),
    ),
)  # fmt: skip
PAUSED = Stage("reports/nightly", "reports", "report", {"retry_limit": 1}, 0.0, report, ())
"""A paused queue with waiting messages."""
SLOW_GROUP = "alerts"
"""A group that is slower than its queue's producers."""
KEPT_SECONDS = 2 * 3600.0
"""Seconds for which the queues keep completed messages, so that the scratch store stays small."""
