"""The pipeline: orders become invoices. It does not know where it runs."""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql import SparkSession

from ackwise import Reject
from ackwise.spark import pipeline
from ackwise.spark.pipelines import Pipeline

RATES = {"EUR": 100, "USD": 92, "GBP": 117}


def bill(order: dict[str, Any]) -> dict[str, int]:
    """What it returns is pushed in one step with the order's ack, and what it raises decides about the order."""
    if "crash" in order:
        os.abort()
    if order["currency"] not in RATES:
        raise Reject(f"no rate for currency {order['currency']}")
    return {"order": order["order"], "cents": order["amount"] * RATES[order["currency"]] // 100}


def billing(spark: SparkSession, url: str) -> Pipeline:
    orders = pipeline(spark, url).consume("orders", "billing")
    return orders.map(bill, returns="order long, cents long").produce("invoices")
