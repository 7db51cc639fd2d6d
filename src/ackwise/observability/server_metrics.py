"""Server metrics: Prometheus families made from the event counts, the depths and the usage of the process."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.utils import floatToGoString

from ackwise.observability.depths import STATES, Depths, QueueDepth
from ackwise.observability.event_counts import EventCounts, Histogram
from ackwise.observability.labels import OTHER, GroupLabels
from ackwise.observability.process_usage import ProcessUsage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ServerState(msgspec.Struct, frozen=True):
    """Current values of the server. A scrape reads them from memory."""

    version: str
    store: str
    """`sqlite` or `postgresql`."""
    long_polls: int = 0
    waiters: dict[str, int] = {}
    """Long polls by queue. The name is empty for claims by namespace or task."""
    connections: dict[str, int] = {}
    """Open connections by listener: `http` and `amps`."""
    store_bytes: int | None = None
    writers: int = 1
    busy_writers: int = 0
    running_requests: int = 0
    loop_lag: float = 0.0
    """Seconds that the event loop was late."""
    maintenance: bool = False
    """Whether pushes of Queen's API wait in the spool."""
    spooled: int = 0
    """Messages in the spool."""
    spool_failed: int = 0
    """Messages in the spool whose push was refused."""
    healthy: bool = True
    draining: bool = False
    read_failures: int = 0
    """Scrapes that could not read the store."""


class Families:
    """The families of one scrape, from a copy of the counts. Each method yields families of one subject."""

    def __init__(
        self, counts: EventCounts, depths: Depths, state: ServerState, usage: ProcessUsage, *, now: int, wall: int
    ) -> None:
        self._counts, self._depths, self._state, self._usage = counts, depths, state, usage
        self._now, self._wall = now, wall
        self._groups = GroupLabels()

    def collect(self) -> Iterator[Metric]:
        yield from self._of_process()
        yield from self._of_depths()
        yield from self._of_messages()
        yield from self._of_turns()
        yield from self._of_requests()
        yield from self._of_scrape()

    def _of_process(self) -> Iterator[Metric]:
        state, usage = self._state, self._usage
        labels = {"version": state.version, "python": platform.python_version(), "store": state.store}
        yield gauge("ackwise_build_info", "Version of the server, always 1.", labels, [(tuple(labels.values()), 1)])
        yield value("ackwise_uptime_seconds", "Seconds since the server started.", usage.uptime)
        yield value("ackwise_healthy", "1 while the server can write to its store.", int(state.healthy))
        yield value("ackwise_draining", "1 while the server shuts down.", int(state.draining))
        yield value("ackwise_long_polls", "Claims that wait for messages.", state.long_polls)
        yield value("ackwise_event_loop_lag_seconds", "Delay of the event loop.", state.loop_lag)
        connections = [((listener,), count) for listener, count in state.connections.items()]
        yield gauge("ackwise_connections", "Open connections by listener.", ("listener",), connections)
        yield value("ackwise_memory_bytes", "Resident memory of the process.", usage.resident)
        yield counter("ackwise_cpu_seconds", "CPU time of the process.", (), [((), usage.user + usage.system)])
        if state.store_bytes is not None:
            yield value("ackwise_store_bytes", "Size of the store on disk.", state.store_bytes)

    def _of_depths(self) -> Iterator[Metric]:
        rows = self._depths.rows
        by_state = [((row.queue, name), getattr(row, name)) for row in rows for name in STATES]
        yield value("ackwise_queues", "Queues in the store.", self._depths.queues)
        yield gauge(
            "ackwise_messages",
            "Messages by state, for the group that is furthest behind.",
            ("queue", "state"),
            by_state,
        )
        stored = [((row.queue,), row.stored) for row in rows]
        yield gauge("ackwise_stored_messages", "Messages in the store, also finished ones.", ("queue",), stored)
        ages = [((row.queue,), self._age(row.oldest_at)) for row in rows]
        yield gauge(
            "ackwise_oldest_claimable_age_seconds",
            "Age of the oldest message that a claim could take now, 0 without one.",
            ("queue",),
            ages,
        )
        groups = list(self._group_rows(rows))
        labels = ("queue", "group")
        lags = [(key, lag) for key, lag, _, _ in groups]
        yield gauge("ackwise_lag_messages", "Messages that the group has not finished.", labels, lags)
        leases = [(key, count) for key, _, count, _ in groups]
        yield gauge("ackwise_leases", "Leases that the group holds.", labels, leases)
        oldest = [(key, self._age(at)) for key, _, _, at in groups]
        yield gauge(
            "ackwise_group_oldest_claimable_age_seconds",
            "Age of the oldest message that the group could claim now, 0 without one.",
            labels,
            oldest,
        )

    def _group_rows(self, rows: Iterable[QueueDepth]) -> Iterator[tuple[tuple[str, str], int, int, int | None]]:
        """Label values, lag, leases and oldest message of each group. Groups of a queue without a label are one sum."""
        sums: dict[tuple[str, str], tuple[int, int, int | None]] = {}
        for row in rows:
            for group in sorted(row.groups, key=lambda group: -group.lag):
                key = (row.queue, self._groups.of(row.queue, group.group))
                lag, leases, oldest = sums.get(key, (0, 0, None))
                both = [at for at in (oldest, group.oldest_at) if at is not None]
                sums[key] = (lag + group.lag, leases + group.leases, min(both, default=None))
        for key, (lag, leases, oldest) in sums.items():
            yield key, lag, leases, oldest

    def _age(self, at: int | None) -> float:
        return 0.0 if at is None else max(0.0, (self._wall - at) / 1_000_000)

    def _of_messages(self) -> Iterator[Metric]:
        counts = self._counts
        group = ("queue", "group")
        yield counter("ackwise_pushed", "Messages stored.", ("queue",), by_name(counts.pushed))
        yield counter(
            "ackwise_duplicates", "Pushed messages that were duplicates.", ("queue",), by_name(counts.duplicates)
        )
        yield counter("ackwise_delivered", "Messages put under a lease.", group, counts.claimed.items())
        yield counter(
            "ackwise_settled", "Messages by the outcome of their delivery.", (*group, "outcome"), counts.settled.items()
        )
        yield histograms("ackwise_settle_seconds", "Time from claim to settlement.", "outcome", counts.settle_times)
        yield counter(
            "ackwise_refusals", "Refused commands and settlements by verdict or error code.", ("verdict",),
            by_name(counts.refused),
        )  # fmt: skip
        yield counter("ackwise_lease_expiries", "Leases that passed their deadline.", group, counts.expired.items())
        yield counter(
            "ackwise_expired_messages", "Messages whose lease passed its deadline.", group,
            counts.expired_messages.items(),
        )  # fmt: skip
        yield counter("ackwise_dead_letters", "New dead letters.", ("queue", "reason"), counts.dead.items())
        yield counter(
            "ackwise_promoted", "Scheduled messages that became claimable.", ("queue",), by_name(counts.promoted)
        )
        yield counter("ackwise_pruned", "Messages that retention removed.", ("queue",), by_name(counts.pruned))

    def _of_turns(self) -> Iterator[Metric]:
        counts = self._counts
        yield histogram("ackwise_turn_seconds", "Duration of a transaction.", counts.turn_seconds)
        yield histogram("ackwise_turn_commands", "Commands in a transaction.", counts.turn_commands)
        yield histogram("ackwise_turn_messages", "Messages in a transaction.", counts.turn_messages)
        yield counter("ackwise_turn_fallbacks", "Turns whose commands ran one by one.", (), [((), counts.fallbacks)])
        yield counter(
            "ackwise_store_disconnects", "Broken connections to the database.", (), [((), counts.connections_lost)]
        )

    def _of_requests(self) -> Iterator[Metric]:
        counts = self._counts
        requests = [((method, route, str(status)), n) for (method, route, status), n in counts.requests.items()]
        yield counter("ackwise_requests", "Requests by route and status.", ("method", "route", "status"), requests)
        errors: dict[tuple[str], int] = {}
        for (_, route, status), count in counts.requests.items():
            errors[route,] = errors.get((route,), 0) + (count if status >= 400 else 0)
        yield counter("ackwise_request_errors", "Requests with a status of 400 or more.", ("route",), errors.items())
        yield histograms("ackwise_request_seconds", "Time to answer a request.", "route", counts.request_seconds)

    def _of_scrape(self) -> Iterator[Metric]:
        counts, depths = self._counts, self._depths
        cut = [(("queue",), int(counts.queues.cut)), (("group",), int(counts.groups.cut or self._groups.cut))]
        yield gauge("ackwise_metrics_cut", f"1 while some names of a label are added up as `{OTHER}`.", ("label",), cut)
        age = 0.0 if depths.read_at is None else max(0.0, (self._now - depths.read_at) / 1_000_000)
        yield value("ackwise_metrics_age_seconds", "Age of the depths in this scrape.", age)
        yield value("ackwise_metrics_read_seconds", "Time that reading the depths took.", depths.read_seconds)
        yield counter(
            "ackwise_metrics_read_failures", "Scrapes that could not read the store.", (),
            [((), self._state.read_failures)],
        )  # fmt: skip


Samples = Iterable[tuple[tuple[str, ...], float]]


def gauge(name: str, text: str, labels: Iterable[str], samples: Samples) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=list(labels))
    for values, number in samples:
        family.add_metric(list(values), number)
    return family


def value(name: str, text: str, number: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=number)


def counter(name: str, text: str, labels: Iterable[str], samples: Samples) -> CounterMetricFamily:
    """A counter. The format adds `_total` to its name."""
    family = CounterMetricFamily(name, text, labels=list(labels))
    for values, number in samples:
        family.add_metric(list(values), number)
    return family


def by_name(counts: Mapping[str, int]) -> Samples:
    return (((name,), count) for name, count in counts.items())


def histogram(name: str, text: str, counts: Histogram) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text)
    family.add_metric([], buckets_of(counts), counts.total)
    return family


def histograms(name: str, text: str, label: str, by_label: Mapping[str, Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=[label])
    for named, counts in by_label.items():
        family.add_metric([named], buckets_of(counts), counts.total)
    return family


def buckets_of(counts: Histogram) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound, as the format writes them."""
    total, buckets = 0, list[tuple[str, float]]()
    for bound, count in zip((*counts.bounds, float("inf")), counts.counts, strict=True):
        total += count
        buckets.append((floatToGoString(bound), total))  # type: ignore[no-untyped-call]
    return buckets


class FixedFamilies:
    """Collector: returns families that the server has built before."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()


def exposition(*collects: Callable[[], Iterator[Metric]]) -> bytes:
    """Families in the text format 0.0.4."""

    def everything() -> Iterator[Metric]:
        for collect in collects:
            yield from collect()

    return generate_latest(FixedFamilies(everything))
