"""Queues that pipelines read and write."""

from tests.spark.stores import desk, local_desk, local_url, url

__all__ = ["desk", "local_desk", "local_url", "url"]
