"""The promises of consume mode, against a model, at random. `ACKWISE_HYPOTHESIS=deep` runs much longer."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.mew.machine import Consumers

DEEP = os.environ.get("ACKWISE_HYPOTHESIS") == "deep"

TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(
    max_examples=300 if DEEP else 15,
    stateful_step_count=50 if DEEP else 30,
    derandomize=not DEEP,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
