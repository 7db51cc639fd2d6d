"""Metrics of a process that is not a server: a subscriber app or the driver of a pipeline."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version

from prometheus_client.core import HistogramMetricFamily, Metric

from ackwise.observability.handler_counts import AppCounts
from ackwise.observability.process_usage import process_usage
from ackwise.observability.server_metrics import buckets_of, counter, exposition, gauge, value

_HANDLER = ("handler", "queue")


def app_exposition(counts: AppCounts, *, connected: bool) -> bytes:
    """Answer to a scrape of a subscriber app."""
    return exposition(process_families, lambda: handler_families(counts, connected=connected))


def process_families() -> Iterator[Metric]:
    labels = {"version": version("ackwise"), "python": platform.python_version()}
    usage = process_usage()
    yield gauge("ackwise_build_info", "Version of Ackwise, always 1.", labels, [(tuple(labels.values()), 1)])
    yield value("ackwise_uptime_seconds", "Seconds since the process started.", usage.uptime)
    yield value("ackwise_memory_bytes", "Resident memory of the process.", usage.resident)
    yield counter("ackwise_cpu_seconds", "CPU time of the process.", (), [((), usage.user + usage.system)])


def handler_families(counts: AppCounts, *, connected: bool) -> Iterator[Metric]:
    handlers = {(name, handler.queue): handler for name, handler in counts.handlers.items()}
    seconds = HistogramMetricFamily("ackwise_handler_seconds", "Time that a handler takes.", labels=list(_HANDLER))
    for key, handler in handlers.items():
        seconds.add_metric(list(key), buckets_of(handler.seconds), handler.seconds.total)
    yield seconds
    running = [(key, handler.in_flight) for key, handler in handlers.items()]
    yield gauge("ackwise_handler_in_flight", "Messages that a handler works on.", _HANDLER, running)
    outcomes = [
        ((*key, outcome), count) for key, handler in handlers.items() for outcome, count in handler.outcomes.items()
    ]
    yield counter(
        "ackwise_handler_settled", "Messages by the outcome that was asked for.", (*_HANDLER, "outcome"), outcomes
    )
    failures = [(key, handler.failures) for key, handler in handlers.items()]
    yield counter("ackwise_handler_failures", "Messages on which a handler raised.", _HANDLER, failures)
    again = [(key, handler.redeliveries) for key, handler in handlers.items()]
    yield counter("ackwise_handler_retries", "Messages that a handler got again.", _HANDLER, again)
    yield value("ackwise_app_connected", "1 while the server or the store answers.", int(connected))


def pipeline_exposition(queue: str, group: str, outcomes: Mapping[str, int], *, batches: int, rows: int) -> bytes:
    """Answer to a scrape of a pipeline's driver."""
    return exposition(
        process_families,
        lambda: pipeline_families(queue, group, outcomes, batches=batches, rows=rows),
    )


def pipeline_families(
    queue: str, group: str, outcomes: Mapping[str, int], *, batches: int, rows: int
) -> Iterator[Metric]:
    labels, key = ("queue", "group"), (queue, group)
    yield counter("ackwise_pipeline_batches", "Batches that the pipeline finished.", labels, [(key, batches)])
    yield counter("ackwise_pipeline_records", "Records that batches processed.", labels, [(key, rows)])
    settled = [((*key, outcome), count) for outcome, count in outcomes.items()]
    yield counter("ackwise_pipeline_settled", "Records by outcome.", (*labels, "outcome"), settled)
