"""Push messages and consume them. Run: python examples/push_and_consume.py"""

import tempfile

import ackwise

with tempfile.TemporaryDirectory() as folder, ackwise.connect(f"sqlite:///{folder}/queue.db") as queue:
    queue.push("orders", {"id": 1, "total": 12.5}, transaction_id="order-1")
    queue.push("orders", {"id": 1, "total": 12.5}, transaction_id="order-1")  # the same id again: a duplicate
    queue.push_many("orders", [{"id": 2, "total": 30}, {"id": 3, "total": 7}])

    # Each group gets every message. The block acks at its end and retries when it raises.
    for group in ("billing", "shipping"):
        for delivery in queue.consume("orders", group=group, wait=0, stop_when_empty=True):
            with delivery:
                print(group, "handles order", delivery.json()["id"])
        print(group, "lag", queue.lag("orders", group))
