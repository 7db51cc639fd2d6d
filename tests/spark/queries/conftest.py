"""Spark itself, over queues."""

from tests.spark.queue_harness import harness, local_harness, local_url, url

__all__ = ["harness", "local_harness", "local_url", "url"]
