"""A latency sketch: counts in buckets whose bounds grow by a quarter, so any quantile is right within 25 %."""

from __future__ import annotations

import math
from collections.abc import Mapping

_GROWTH = math.log(1.25)


def bucket(micros: int) -> int:
    """The bucket's number; 0 holds everything up to a microsecond."""
    return 0 if micros <= 1 else math.ceil(math.log(micros) / _GROWTH)


def bound(number: int) -> int:
    """The largest latency in microseconds that falls into the bucket."""
    return round(math.exp(number * _GROWTH))


def merged(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    """Both sketches added up; merging is exact."""
    total = dict(one)
    for number, count in other.items():
        total[number] = total.get(number, 0) + count
    return total


def quantile(sketch: Mapping[int, int], q: float) -> int | None:
    """The q-quantile in microseconds, None for an empty sketch."""
    left = math.ceil(q * sum(sketch.values()))
    for number in sorted(sketch):
        left -= sketch[number]
        if left <= 0:
            return bound(number)
    return None
