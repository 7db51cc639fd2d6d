"""Latency histogram with buckets that grow by a quarter."""

from __future__ import annotations

import math
from collections.abc import Mapping

_GROWTH = math.log(1.25)


def bucket(micros: int) -> int:
    """The number of the bucket for a latency. Bucket 0 covers latencies up to one microsecond."""
    return 0 if micros <= 1 else math.ceil(math.log(micros) / _GROWTH)


def histogram(times: Mapping[int, int]) -> dict[int, int]:
    """The buckets of messages that took so many microseconds."""
    counts: dict[int, int] = {}
    for micros, count in times.items():
        number = bucket(micros)
        counts[number] = counts.get(number, 0) + count
    return counts


def bound(number: int) -> int:
    """The largest latency of a bucket, in microseconds."""
    return round(math.exp(number * _GROWTH))


def merged(first: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    """Sum of two histograms. Merging loses nothing."""
    total = dict(first)
    for number, count in other.items():
        total[number] = total.get(number, 0) + count
    return total
