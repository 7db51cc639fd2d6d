"""Retry with a backoff, up to a limit; then a dead letter. Run: python examples/retry_and_dead_letters.py"""

import tempfile

import ackwise
from ackwise import Backoff

with tempfile.TemporaryDirectory() as folder, ackwise.connect(f"sqlite:///{folder}/queue.db") as queue:
    queue.create_queue("orders", retry_limit=3, backoff=Backoff(kind="fixed", seconds=0.05))
    queue.create_group("orders", "billing")
    queue.push_many("orders", [{"id": 1}, {"id": 2, "card": "expired"}, {"id": 3, "customer": None}])

    while queue.lag("orders", "billing"):
        for delivery in queue.consume("orders", group="billing", wait=0.2, stop_when_empty=True):
            order = delivery.json()
            if "card" in order:
                print("order", order["id"], "fails on attempt", delivery.attempt)
                delivery.retry(error="the card is expired")
            elif "customer" in order:
                delivery.reject("no such customer")  # can never succeed: a dead letter at once
            else:
                delivery.ack()
                print("order", order["id"], "is billed")

    for letter in queue.dead_letters("orders"):
        print(
            "dead letter:",
            {"id": letter.json()["id"]},
            letter.reason,
            "-",
            letter.error,
            "after",
            letter.failures,
            "failures",
        )
