"""The one Spark session and the one NATS server of a process, for pages that use them."""

from tests.spark.conftest import spark
from tests.subscriber.nats.conftest import nats_url

__all__ = ["nats_url", "spark"]
