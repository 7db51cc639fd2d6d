"""Ack a message and push its result in one commit. Run: python examples/transaction.py"""

import tempfile

import ackwise

with tempfile.TemporaryDirectory() as folder, ackwise.connect(f"sqlite:///{folder}/queue.db") as queue:
    queue.push_many("orders", [{"id": 1, "cents": 1250}, {"id": 2, "cents": 3000}])

    for delivery in queue.consume("orders", group="billing", wait=0, stop_when_empty=True):
        order = delivery.json()
        invoice = {"order": order["id"], "cents": order["cents"] * 119 // 100}
        with queue.transaction() as step:  # commits at the end of the block; an exception rolls back
            step.ack(delivery)
            step.push("invoices", invoice, transaction_id=f"invoice-of-{delivery.transaction_id}")

    print("orders left:", queue.lag("orders", "billing"))
    print("invoices:", [message.json() for message in queue.browse("invoices")])
