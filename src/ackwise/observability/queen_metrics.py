"""Queen's metrics: the families `queen_*` that panels of Queen users read, and the JSON of `GET /metrics`.

Some families have no sample, because Ackwise has no value for them. A panel then shows no data instead of 0.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric

from ackwise.observability.depths import Depths
from ackwise.observability.event_counts import EventCounts
from ackwise.observability.process_usage import ProcessUsage
from ackwise.observability.server_metrics import ServerState, counter, gauge, value

_QUEUE = ("queue",)
_WORKER = ("hostname", "worker_id")
_PER_MINUTE = {
    "push_requests": "Push requests",
    "push_messages": "Pushed messages",
    "pop_messages": "Popped messages",
    "pop_empty": "Pops without a message",
    "ack": "Settled messages",
    "transactions": "Transactions",
}
_SOURCES = {"transactions": "transaction_requests"}
_WORKER_PER_MINUTE = {
    "push_messages": "push_messages",
    "pop_messages": "pop_messages",
    "ack_messages": "ack",
    "push_requests": "push_requests",
    "pop_requests": "pop_requests",
    "ack_requests": "ack_requests",
    "dlq": "dlq",
}


class QueenFamilies:
    """The families of one scrape with Queen's names, from a copy of the counts."""

    def __init__(
        self, counts: EventCounts, depths: Depths, state: ServerState, usage: ProcessUsage, instance: str
    ) -> None:
        self._counts, self._depths, self._state, self._usage = counts, depths, state, usage
        self._worker = (socket.gethostname(), instance)

    def collect(self) -> Iterator[Metric]:
        yield from self._of_process()
        yield from self._of_cluster()
        yield from self._of_queues()
        yield from self._of_worker()
        yield from self._of_dead_letters()

    def _of_process(self) -> Iterator[Metric]:
        usage, state = self._usage, self._state
        yield value("queen_uptime_seconds", "Seconds since the server started.", usage.uptime)
        yield value("queen_process_resident_memory_bytes", "Resident memory.", usage.resident)
        yield value("queen_process_virtual_memory_bytes", "Virtual memory.", usage.virtual)
        yield _total("queen_cpu_user_microseconds", "CPU time in user mode.", round(usage.user * 1e6))
        yield _total("queen_cpu_system_microseconds", "CPU time in system mode.", round(usage.system * 1e6))
        yield value("queen_db_pool_size", "Writers of the store.", state.writers)
        yield value("queen_db_pool_idle", "Idle writers of the store.", state.writers - state.busy_writers)
        yield value("queen_db_pool_active", "Writers of the store that run a turn.", state.busy_writers)

    def _of_cluster(self) -> Iterator[Metric]:
        counts = self._counts
        acked = sum(counts.outcomes.values())
        messages = {"push": counts.totals["push"], "pop": counts.totals["pop"], "ack": acked}
        for what, number in messages.items():
            requests = counts.kinds.get(what, 0)
            yield _total(f"queen_cluster_{what}_requests", f"Requests to {what}.", requests)
            yield _total(f"queen_cluster_{what}_messages", f"Messages of requests to {what}.", number)
        success = counts.outcomes.get("acked", 0)
        failed = acked - success
        results = [(("success",), success), (("failed",), failed)]
        yield counter("queen_cluster_ack", "Settled messages by result.", ("result",), results)
        yield _total("queen_cluster_transactions", "Transactions.", counts.kinds.get("transaction", 0))
        yield _total("queen_cluster_dlq", "New dead letters.", counts.totals["dlq"])
        failures = counts.connections_lost + counts.fallbacks
        yield _total("queen_cluster_db_errors", "Errors of the database.", failures)

    def _of_queues(self) -> Iterator[Metric]:
        minute = self._counts.minutes.last()
        queues = sorted(self._counts.queues.shown)
        for name, text in _PER_MINUTE.items():
            source = _SOURCES.get(name, name)
            samples = [((queue,), minute.get((queue, source), 0)) for queue in queues]
            yield gauge(f"queen_queue_{name}_per_minute", f"{text} in the last whole minute.", _QUEUE, samples)
        yield gauge("queen_queue_conflated_per_minute", "Ackwise does not conflate messages.", _QUEUE, ())
        yield gauge("queen_queue_pop_lag_milliseconds", "Ackwise does not measure it.", ("queue", "stat"), ())
        parked = [((self._counts.queues.known(queue),), count) for queue, count in self._state.waiters.items()]
        yield gauge("queen_queue_parked_consumers", "Consumers that wait for messages.", _QUEUE, _added(parked))
        yield value(
            "queen_queue_metrics_age_seconds", "Seconds since the last whole minute ended.", self._counts.minutes.age()
        )

    def _of_worker(self) -> Iterator[Metric]:
        minute, state, worker = self._counts.minutes.last(), self._state, self._worker

        def sample(name: str, text: str, number: float) -> Metric:
            return gauge(f"queen_worker_{name}", text, _WORKER, [(worker, number)])

        for name, source in _WORKER_PER_MINUTE.items():
            number = sum(count for (_, what), count in minute.items() if what == source)
            yield sample(f"{name}_per_minute", "Count of the last whole minute.", number)
        turns = sum(count for (_, what), count in minute.items() if what.endswith("_requests"))
        yield sample("jobs_done_per_minute", "Requests of the last whole minute.", turns)
        yield sample("event_loop_lag_milliseconds", "Delay of the event loop.", round(state.loop_lag * 1000, 3))
        yield sample("free_slots", "Idle writers of the store.", state.writers - state.busy_writers)
        yield sample("db_connections", "Writers of the store.", state.writers)
        yield sample("job_queue_size", "Requests that are being answered.", state.running_requests)
        yield sample("backoff_size", "Claims that wait for messages.", state.long_polls)
        yield sample("metrics_age_seconds", "Seconds since the last whole minute ended.", self._counts.minutes.age())

    def _of_dead_letters(self) -> Iterator[Metric]:
        by_queue = [((row.queue,), row.dead) for row in self._depths.rows]
        yield value("queen_dlq_depth", "Dead letters in the store.", sum(count for _, count in by_queue))
        yield gauge("queen_dlq_depth_by_queue", "Dead letters in the store by queue.", _QUEUE, by_queue)
        yield value("queen_maintenance_mode_enabled", "1 while pushes are buffered.", int(self._state.maintenance))
        yield value(
            "queen_file_buffer_pending", "Messages that wait for the end of a maintenance.", self._state.spooled
        )
        yield value("queen_file_buffer_failed", "Waiting messages that were refused.", self._state.spool_failed)
        yield value("queen_file_buffer_db_healthy", "1 while the server can write.", int(self._state.healthy))
        yield gauge("queen_timers_fire_lag_seconds", "Ackwise has no timers.", (), ())
        yield gauge("queen_timers_oldest_late_seconds", "Ackwise has no timers.", (), ())


def _total(name: str, text: str, number: float) -> Metric:
    return counter(name, text, (), [((), number)])


def _added(samples: list[tuple[tuple[str], int]]) -> list[tuple[tuple[str], int]]:
    """Adds up samples with the same labels."""
    sums: dict[tuple[str], int] = {}
    for labels, count in samples:
        sums[labels] = sums.get(labels, 0) + count
    return list(sums.items())


def queen_json(counts: EventCounts, state: ServerState, usage: ProcessUsage) -> dict[str, Any]:
    """The answer of `GET /metrics`. Rates are per second, of the last whole minute."""
    with counts.lock:
        minute = counts.minutes.last()
        requests = counts.totals["requests"]
        messages = counts.totals["push"] + counts.totals["pop"]
    asked = sum(count for (_, what), count in minute.items() if what.endswith("_requests"))
    moved = sum(count for (_, what), count in minute.items() if what in ("push_messages", "pop_messages"))
    return {
        "uptime": round(usage.uptime, 3),
        "requests": {"total": requests, "rate": round(asked / 60, 3)},
        "messages": {"total": messages, "rate": round(moved / 60, 3)},
        "database": {
            "poolSize": state.writers,
            "idleConnections": state.writers - state.busy_writers,
            "waitingRequests": state.running_requests,
        },
        "memory": {
            "rss": usage.resident,
            "heapTotal": usage.virtual,
            "heapUsed": usage.resident,
            "external": 0,
            "arrayBuffers": 0,
        },
        "cpu": {"user": round(usage.user * 1e6), "system": round(usage.system * 1e6)},
    }
