"""A Spark pipeline that acks, retries or dead-letters every record. Run: python examples/spark_pipeline.py

It needs: pip install "ackwise[spark]"
"""

import tempfile

import ackwise
from ackwise.spark import pipeline, session


def invoice(order):
    if order["total"] <= 0:
        raise ackwise.Reject("nothing to pay")  # a dead letter; any other exception is a retry
    return {"order": order["id"], "cents": round(order["total"] * 100)}  # pushed in one commit with the ack


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/queue.db"
        with ackwise.connect(url) as queue:
            queue.push_many("orders", [{"id": number, "total": number % 10} for number in range(100)])
        spark = session()
        orders = pipeline(spark, url).consume("orders", "invoicing")
        totals = orders.map(invoice, returns="order long, cents long").produce("invoices").run()
        print("acked", totals.acked, "dead", totals.dead, "outputs", totals.outputs)
        spark.stop()
