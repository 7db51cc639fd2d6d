"""The one Spark session and the one NATS server of a process, for pages that use them."""

import pytest
from opentelemetry import trace
from opentelemetry.util._once import Once

from tests.spark.conftest import spark
from tests.subscriber.nats.conftest import nats_url

__all__ = ["nats_url", "spark"]


@pytest.fixture(autouse=True)
def no_tracer_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page may set up OpenTelemetry. At the end of the test it is as before."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
