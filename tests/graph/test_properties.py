"""The promises of consume mode, against a model, at random. `ACKWISE_HYPOTHESIS=deep` runs much longer."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.graph.machine import Consumers
from tests.pg import FACTORIES
from tests.pg_databases import clean

DEEP = os.environ.get("ACKWISE_HYPOTHESIS") == "deep"


def run(fresh: Callable[[], str], examples: int) -> None:
    make: Any = partial(Consumers, fresh)
    how = settings(
        max_examples=examples * 20 if DEEP else examples,
        stateful_step_count=50 if DEEP else 40,
        derandomize=not DEEP,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    run_state_machine_as_test(make, settings=how)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_consumers_on_sqlite_keep_the_promises(tmp_path: Path) -> None:
    numbers = count()
    run(lambda: f"sqlite:///{tmp_path}/{next(numbers)}.db?durability=normal", 16)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("factory", FACTORIES)
def test_consumers_on_postgres_keep_the_promises(request: pytest.FixtureRequest, factory: str) -> None:
    url: str = request.getfixturevalue(factory)()

    def fresh() -> str:
        clean(url)
        return url

    run(fresh, 4)
