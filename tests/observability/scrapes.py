"""A scrape, parsed by Prometheus' own parser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """Samples of `GET /metrics/prometheus` by name and labels."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self.samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for family in self.families:
            for sample in family.samples:
                key = sample.name, _labels(sample.labels)
                assert key not in self.samples, f"{key} is there twice"
                self.samples[key] = sample.value
        self.names = {f"{family.name}_total" if family.type == "counter" else family.name for family in self.families}

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, _labels(labels)]

    def of(self, name: str) -> dict[tuple[str, ...], float]:
        """Values of a name by the values of its labels, in the order of the labels' names."""
        return {
            tuple(value for _, value in labels): number
            for (sample, labels), number in self.samples.items()
            if sample == name
        }


def _labels(labels: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def scrape(http: httpx2.Client) -> Scrape:
    answer = http.get("/metrics/prometheus")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Scrape(answer.text)
