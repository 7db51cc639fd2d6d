"""Fix the cause of dead letters, then put them back. Run: python examples/redrive.py"""

import tempfile

import ackwise

PRICES = {"apple": 30}


def bill(queue: ackwise.Connection) -> None:
    for delivery in queue.consume("orders", group="billing", wait=0, stop_when_empty=True):
        fruit = delivery.json()["fruit"]
        if fruit in PRICES:
            delivery.ack()
            print("billed", fruit, PRICES[fruit])
        else:
            delivery.reject(f"no price for {fruit}")


with tempfile.TemporaryDirectory() as folder, ackwise.connect(f"sqlite:///{folder}/queue.db") as queue:
    queue.push_many("orders", [{"fruit": "apple"}, {"fruit": "plum"}])
    bill(queue)
    letters = queue.dead_letters("orders", group="billing")
    print("dead letters:", [letter.error for letter in letters])

    PRICES["plum"] = 45  # fix the cause
    print("redriven:", queue.redrive(letters).count)
    bill(queue)
    print("dead letters:", len(queue.dead_letters("orders")), "lag:", queue.lag("orders", "billing"))
