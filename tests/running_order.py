"""Order of the tests on several workers: Spark runs on one of them, and no slow test begins at the end."""

from __future__ import annotations

import os
from itertools import groupby
from typing import Any

import pytest

WORKERS = "PYTEST_XDIST_WORKER_COUNT"


def arrange(items: list[pytest.Item]) -> None:
    """Arrange tests for xdist, which gives each worker one part of the list. A worker without work takes the rest.

    Tests with a Spark session come first. A worker that starts a session compiles Spark's code for a minute. Other slow
    tests begin the parts of the other workers. The rest keeps its random order.
    """
    workers = int(os.environ.get(WORKERS, "1"))
    if workers == 1:
        return
    spark, slow, rest = [], [], []
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or item.get_closest_marker("spark") is not None:
            spark.append(item)
        else:
            (rest if item.get_closest_marker("slow") is None else slow).append(item)
    parts: list[list[pytest.Item]] = [spark, *([] for _ in range(workers - 1))]
    for _, module in groupby(slow, _module_of):
        min(parts[1:], key=len).extend(module)
    left = len(items)
    for number, part in enumerate(parts):
        size = left // (workers - number)
        left -= size
        room = max(0, size - len(part))
        part += rest[:room]
        del rest[:room]
    items[:] = [item for part in parts for item in part] + rest


def _module_of(item: pytest.Item) -> Any:
    return getattr(item, "module", None)
