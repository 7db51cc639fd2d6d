"""`/api/v1/analytics/…`: series and summaries from the ledger, the queues and this process."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core.errors import BadInput, UnknownQueue
from ackwise.core.ids import uuid_int
from ackwise.core.queen_queries import DatabaseStats, SumLedger
from ackwise.core.rows import DeadPage, LedgerSum, PartitionRow, QueueSummary
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer, encode
from ackwise.protocols.queen.configure import tag_or_none
from ackwise.protocols.queen.dead_letters import error_of
from ackwise.protocols.queen.process_stats import ProcessStats, hostname, process_stats
from ackwise.protocols.queen.status import Tags, bucket_counts, tags_of
from ackwise.protocols.queen.time_series import DAY, HOUR, Counts, Window, rate, sample_of, total_of, window_of
from ackwise.protocols.queen.totals import Fields
from ackwise.protocols.queen.vocabulary import QueenContext, number_in, show_time
from ackwise.protocols.streamed_lists import array, pages, streamed

MOST_ROWS = 200
"""Rows of a workload: the busiest keys."""
MOST_LETTERS = 1000
SIGNATURES = 8
LONGEST_SIGNATURE = 120
_UUID = re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")
_HEX = re.compile(r"\b(?=[0-9a-fA-F]*[0-9])(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{12,}\b")
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_INTEGER = re.compile(r"\d+")
_STATS_KEYS = (
    *("database", "databaseCache", "tableCache", "indexCache", "cacheSummary", "deadTuples", "hotUpdates"),
    *("activeQueries", "autovacuumStatus", "bufferConfig", "tableSizes", "bufferUsage"),
)
_OBJECTS = ("database", "databaseCache", "cacheSummary", "bufferConfig")
_GROUPS = ("namespace", "task", "queue")


def routes(broker: AsyncBroker, context: QueenContext) -> list[Route]:
    analytics = AnalyticsRoutes(broker, context)
    base = "/api/v1/analytics"
    return [
        Route("GET", f"{base}/queue-lag", analytics.queue_lag),
        Route("GET", f"{base}/queue-ops", analytics.queue_ops),
        Route("GET", f"{base}/queue-parked-replicas", analytics.parked),
        Route("GET", f"{base}/retention", analytics.retention),
        Route("GET", f"{base}/worker-metrics", analytics.workers),
        Route("GET", f"{base}/system-metrics", analytics.system),
        Route("GET", f"{base}/postgres-stats", analytics.database),
        Route("GET", f"{base}/workload", analytics.workload),
        Route("GET", f"{base}/dlq-signatures", analytics.signatures),
        Route("GET", f"{base}/partition-liveness", analytics.liveness),
    ]


class AnalyticsRoutes:
    """Handlers of the analytics routes. They only read."""

    def __init__(self, broker: AsyncBroker, context: QueenContext) -> None:
        self._broker, self._upstream = broker, context.upstream

    def _window(self, call: Call) -> Window:
        return window_of(call.query, self._broker.wall())

    async def queue_lag(self, call: Call) -> Answer:
        """Answers an empty list: the ledger does not count how long messages wait for a pop."""
        self._window(call)
        return answer([])

    async def queue_ops(self, call: Call) -> Answer:
        """Counts per queue and bucket, oldest first. Only buckets and queues with a count are listed."""
        window, names = self._window(call), set[str]()
        tags = tags_of(call.query)

        async def pieces() -> AsyncIterator[bytes]:
            for start in window.buckets():
                query = _bucket_sums(window, start, tags)
                async for piece in pages(
                    self._broker, query, partial(_write_ops, names=names, start=start, window=window)
                ):
                    yield piece

        head = b'{"timeRange":%b,"bucketMinutes":%d,"series":[' % (encode(window.fields()), window.minutes)
        return await streamed(call, array(pieces(), head, lambda: b'],"queues":%b}' % encode(sorted(names))))

    async def parked(self, call: Call) -> Answer:
        """Answers no series: the ledger does not count waiting consumers."""
        window = self._window(call)
        return answer({**_range_fields(window), "series": [], "replicas": [self._replica()]})

    async def retention(self, call: Call) -> Answer:
        """Answers no series: the ledger does not count messages that retention removes."""
        window = self._window(call)
        group_by = call.query.get("groupBy")
        if group_by is not None and group_by not in _GROUPS:
            raise BadInput("bad groupBy")
        names = ("retentionMsgs", "completedRetentionMsgs", "evictionMsgs", "totalMsgs", "eventCount")
        rows: Fields = {"rows": []} if group_by is not None else {}
        return answer({**_range_fields(window), "series": [], "totals": dict.fromkeys(names), **rows})

    def _replica(self) -> Fields:
        return {"hostname": hostname(), "workerId": self._broker.store.traits.instance}

    async def workers(self, call: Call) -> Answer:
        window = self._window(call)
        counts = await bucket_counts(self._broker, window, tags_of(call.query))
        pending = _Pending()
        async for _ in pages(self._broker, q.ListStats(), pending.add):
            pass
        points = [_worker_point(start, counts.get(start), window) for start in window.buckets()]
        total = sample_of(total_of(counts))
        summary = {
            "totalPushMessages": total.pushed,
            "totalPopMessages": None,
            "totalAckMessages": total.settled,
            "totalAckFailed": total.failed,
            "totalDlqMessages": total.dead,
            "pendingMessages": pending.count,
        }
        fields = {**_range_fields(window), "pointCount": len(points), "timeSeries": points}
        return answer({**fields, "workers": [self._replica()], "queues": [], "summary": summary})

    async def system(self, call: Call) -> Answer:
        """Current figures of this process. The server keeps no earlier figures."""
        window, replica = self._window(call), self._replica()
        wanted = all(call.query.get(name, replica[name]) == replica[name] for name in replica)
        now = self._broker.wall()
        replicas = []
        if wanted and window.start <= now <= window.end + window.size:
            point = {"timestamp": show_time(now), "metrics": _process_metrics(process_stats())}
            replicas.append({**replica, "timeSeries": [point]})
        fields = {**_range_fields(window), "pointCount": len(replicas), "replicaCount": len(replicas)}
        return answer({**fields, "replicas": replicas})

    async def database(self, _: Call) -> Answer:
        stats = await self._broker.ask(DatabaseStats())
        shown = {key: stats.get(key, {} if key in _OBJECTS else []) for key in _STATS_KEYS}
        return answer({"timestamp": show_time(self._broker.wall()), **shown})

    async def workload(self, call: Call) -> Answer:
        """Counts of the window, and current counts, by namespace, task or queue. At most `MOST_ROWS`, busiest first."""
        group_by = call.query.get("groupBy", "namespace")
        if group_by not in _GROUPS:
            raise BadInput("bad groupBy")
        window, tags = self._window(call), tags_of(call.query)
        load = _Workload(group_by, window, tags)
        async for _ in pages(self._broker, q.ListStats(namespace=tags["namespace"], task=tags["task"]), load.add_now):
            pass
        for start in window.buckets():
            query = _bucket_sums(window, start, tags)
            async for _ in pages(self._broker, query, partial(load.add, start=start)):
                pass
        await call.reserve(2 << 20)
        return Answer(await self._broker.in_thread(load.encoded))

    async def signatures(self, call: Call) -> Answer:
        """Groups the newest dead letters of a queue by error text."""
        queue = call.query.get("queue")
        if not queue:
            raise BadInput("queue required")
        limit = number_in(call.query, "limit", 200, MOST_LETTERS, least=1, lenient=self._upstream)
        letters = _Signatures(queue)
        try:
            async for _ in pages(self._broker, q.ListDead(queue=queue), letters.add, rows=limit, most=limit):
                pass
        except UnknownQueue:
            pass
        return answer(letters.fields())

    async def liveness(self, call: Call) -> Answer:
        """Counts the recently written partitions of the queues with the most partitions."""
        limit = number_in(call.query, "limit", 20, 200, least=1, lenient=self._upstream)
        tags, now = tags_of(call.query), self._broker.wall()
        widest = _Widest(limit, tags["queue"])
        listing = q.ListStats(namespace=tags["namespace"], task=tags["task"])
        async for _ in pages(self._broker, listing, widest.add):
            pass
        rows = []
        for summary in widest.rows:
            fold = _Liveness(summary, now)
            try:
                async for _ in pages(self._broker, q.ListPartitions(queue=summary.info.name), fold.add, rows=2000):
                    pass
            except UnknownQueue:
                continue
            rows.append(fold.fields())
        return answer({"capturedAt": show_time(now), "rows": rows})


def _bucket_sums(window: Window, start: int, tags: Tags) -> SumLedger:
    """The query for the counts of one bucket by queue."""
    last = min(start + window.size - 1, window.end)
    return SumLedger(
        after_at=max(start, window.start),
        before_at=last,
        queue=tags["queue"],
        namespace=tags["namespace"],
        task=tags["task"],
    )


def _range_fields(window: Window) -> Fields:
    return {"timeRange": window.fields(), "bucketMinutes": window.minutes}


def _by_queue(rows: Iterable[LedgerSum]) -> dict[str, Counts]:
    queues: dict[str, Counts] = {}
    for row in rows:
        queues.setdefault(row.queue, {})[row.outcome] = row.count
    return queues


def _write_ops(rows: Iterable[LedgerSum], names: set[str], start: int, window: Window) -> bytes:
    queues = _by_queue(rows)
    names.update(queues)
    return b",".join([encode(_operations(queue, counts, start, window)) for queue, counts in queues.items()])


def _operations(queue: str, counts: Counts, start: int, window: Window) -> Fields:
    """One queue in one bucket. The ledger has neither requests nor deliveries, so these fields are null."""
    sample = sample_of(counts)
    return {
        "bucket": show_time(start),
        "queueName": queue,
        "pushRequests": None,
        "pushMessages": sample.pushed,
        "popMessages": None,
        "popEmpty": None,
        "ackRequests": None,
        "ackSuccess": sample.acked,
        "ackFailed": sample.failed,
        "transactions": None,
        "partitionsCreated": None,
        "partitionsDeleted": None,
        "partitionCount": None,
        "avgLagMs": None,
        "maxLagMs": None,
        "pushPerSecond": rate(sample.pushed, window.seconds),
        "popPerSecond": None,
        "ackPerSecond": rate(sample.settled, window.seconds),
        "emptyPerSecond": None,
        "parkedCount": None,
    }


class _Pending:
    def __init__(self) -> None:
        self.count = 0

    def add(self, rows: Iterable[QueueSummary]) -> None:
        self.count += sum(row.stats.pending for row in rows)


def _worker_point(start: int, counts: Counts | None, window: Window) -> Fields:
    sample = sample_of(counts)
    unknown = (
        *("popMessages", "pushRequests", "popRequests", "ackRequests", "jobsDone", "popPerSecond"),
        *("avgEventLoopLagMs", "maxEventLoopLagMs", "avgFreeSlots", "minFreeSlots", "dbConnections"),
        *("avgJobQueueSize", "maxJobQueueSize", "backoffSize", "avgLagMs", "maxLagMs", "lagCount", "dbErrors"),
    )
    return {
        "timestamp": show_time(start),
        "pushMessages": sample.pushed,
        "ackMessages": sample.settled,
        "pushPerSecond": rate(sample.pushed, window.seconds),
        "ackPerSecond": rate(sample.settled, window.seconds),
        "ackSuccess": sample.acked,
        "ackFailed": sample.failed,
        "dlqCount": sample.dead,
        **dict.fromkeys(unknown),
    }


def _process_metrics(stats: ProcessStats) -> Fields:
    """Current figures. CPU is the average since the start of the process, in hundredths of a percent."""
    life = max(stats.uptime, 0.001)
    return {
        "cpu": {
            "user_us": _leaf(round(10_000 * stats.user_seconds / life)),
            "system_us": _leaf(round(10_000 * stats.system_seconds / life)),
        },
        "memory": {"rss_bytes": _leaf(stats.resident_bytes), "virtual_bytes": _leaf(stats.virtual_bytes)},
        "database": {name: _leaf(None) for name in ("pool_size", "pool_idle", "pool_active")},
        "uptime_seconds": _leaf(round(stats.uptime)),
    }


def _leaf(value: int | None) -> Fields:
    return dict.fromkeys(("avg", "min", "max", "last"), value)


class _Load:
    """One row of a workload."""

    def __init__(self) -> None:
        self.queues: set[str] = set()
        self.touched: set[str] = set()
        self.active: set[str] = set()
        self.buckets: dict[int, Counts] = {}
        self.now = Counter[str]()

    def add_now(self, row: QueueSummary) -> None:
        stats = row.stats
        self.queues.add(row.info.name)
        self.now.update(
            pending=stats.pending, processing=stats.processing, deadLetter=stats.dead, partitions=stats.partitions,
            groups=len(stats.groups), queuesWithoutGroup=int(not stats.groups),
            pendingWithoutGroup=0 if stats.groups else stats.pending,
        )  # fmt: skip

    def add(self, queue: str, counts: Counts, start: int) -> None:
        self.touched.add(queue)
        if counts.get("acked") or counts.get("retried") or counts.get("dead"):
            self.active.add(queue)
        bucket = self.buckets.setdefault(start, {})
        for outcome, count in counts.items():
            bucket[outcome] = bucket.get(outcome, 0) + count

    @property
    def busyness(self) -> int:
        return sum(sum(counts.values()) for counts in self.buckets.values())

    def fields(self, buckets: Iterable[int]) -> Fields:
        whole = sample_of(total_of(self.buckets))
        series = [sample_of(self.buckets.get(start)) for start in buckets]
        unknown = (
            *("pushRequests", "popMessages", "popEmpty", "ackRequests", "transactions", "conflated"),
            *("partitionsCreated", "partitionsDeleted", "parkedAvg", "avgLagMs", "maxLagMs"),
        )
        names = ("pending", "processing", "deadLetter", "partitions", "groups")
        return {
            "queues": len(self.queues),
            "window": {
                "pushMessages": whole.pushed,
                "ackSuccess": whole.acked,
                "ackFailed": whole.failed,
                **dict.fromkeys(unknown),
            },
            "series": {
                "push": [sample.pushed for sample in series],
                "ackFailed": [sample.failed for sample in series],
                **{name: [None] * len(series) for name in ("pop", "popEmpty", "parked", "avgLagMs", "maxLagMs")},
            },
            "now": {
                **{name: self.now[name] for name in (*names, "queuesWithoutGroup", "pendingWithoutGroup")},
                "retainedBytes": None,
                "queuesTouched": len(self.touched),
                "queuesActive": len(self.active),
            },
        }


class _Workload:
    """Adds up queues by namespace, task or name."""

    def __init__(self, group_by: str, window: Window, tags: Tags) -> None:
        self._group_by, self._window, self._queue = group_by, window, tags["queue"]
        self._keys: dict[str, str] = {}
        """The key of each existing queue."""
        self._loads: dict[str, _Load] = {}
        self._tenant = _Load()

    def add_now(self, rows: Iterable[QueueSummary]) -> None:
        for row in rows:
            if self._queue in (None, row.info.name):
                tags = {"namespace": row.info.namespace, "task": row.info.task, "queue": row.info.name}
                key = self._keys[row.info.name] = tags[self._group_by]
                self._loads.setdefault(key, _Load()).add_now(row)
                self._tenant.add_now(row)

    def add(self, rows: Iterable[LedgerSum], start: int) -> None:
        for queue, counts in _by_queue(rows).items():
            if queue in self._keys:
                self._loads[self._keys[queue]].add(queue, counts, start)
                self._tenant.add(queue, counts, start)

    def encoded(self) -> bytes:
        buckets = list(self._window.buckets())
        busiest = sorted(self._loads.items(), key=lambda item: (-item[1].busyness, item[0]))
        rows = [{"key": key, **load.fields(buckets)} for key, load in busiest[:MOST_ROWS]]
        return encode(
            {
                **_range_fields(self._window),
                "groupBy": self._group_by,
                "buckets": [show_time(start) for start in buckets],
                "rows": rows,
                "tenant": self._tenant.fields(buckets),
            }
        )


def signature_of(text: str) -> str:
    """An error text without ids, dates and numbers, so that equal errors have equal texts."""
    text = _UUID.sub("<id>", text[: 10 * LONGEST_SIGNATURE])
    text = _INTEGER.sub("<n>", _HEX.sub("<id>", _DATE.sub("<date>", text)))
    return text[:LONGEST_SIGNATURE]


class _Signatures:
    """Adds up dead letters by error text."""

    def __init__(self, queue: str) -> None:
        self._queue, self._total, self._sample, self._bytes = queue, 0, 0, 0
        self._texts, self._days = Counter[str](), Counter[str]()
        self._retries, self._groups = Counter[int](), Counter[str]()
        self._times: list[int] = []

    def add(self, page: DeadPage) -> None:
        self._total = page.total
        for letter in page.letters:
            self._sample += 1
            self._bytes += len(letter.payload)
            self._texts[signature_of(error_of(letter))] += 1
            self._days[(show_time(letter.dead_at) or "")[:10]] += 1
            self._retries[letter.failures] += 1
            self._groups[letter.group] += 1
            self._times.append(letter.dead_at)

    def fields(self) -> Fields:
        texts = self._texts.most_common(SIGNATURES)
        return {
            "queue": self._queue,
            "rowsNow": self._total,
            "sample": self._sample,
            "retryCounts": {str(count): number for count, number in sorted(self._retries.items())},
            "groups": dict(self._groups.most_common()),
            "oldest": show_time(min(self._times, default=None)),
            "newest": show_time(max(self._times, default=None)),
            "avgBytes": round(self._bytes / self._sample) if self._sample else None,
            "signatures": [{"text": text, "n": n, "share": round(n / self._sample, 4)} for text, n in texts],
            "byDay": [{"day": day, "n": n} for day, n in sorted(self._days.items())],
        }


class _Widest:
    """Keeps the queues with the most partitions."""

    def __init__(self, limit: int, queue: str | None) -> None:
        self._limit, self._queue = limit, queue
        self.rows: list[QueueSummary] = []

    def add(self, rows: Iterable[QueueSummary]) -> None:
        self.rows += [row for row in rows if self._queue in (None, row.info.name)]
        self.rows = sorted(self.rows, key=lambda row: (-row.stats.partitions, row.info.name))[: self._limit]


class _Liveness:
    """Adds up the partitions of a queue by their newest messages."""

    def __init__(self, summary: QueueSummary, now: int) -> None:
        self._summary, self._now = summary, now
        self._live = {"live1h": 0, "live24h": 0, "live7d": 0}
        self._created = 0
        self._writes: tuple[int, int] | None = None

    def add(self, rows: Iterable[PartitionRow]) -> None:
        for row in rows:
            number = uuid_int(row.partition_id)
            if number is not None and self._now - (number >> 80) * 1000 < DAY:
                self._created += 1
            if row.newest_at is None:
                continue
            for name, age in (("live1h", HOUR), ("live24h", DAY), ("live7d", 7 * DAY)):
                self._live[name] += self._now - row.newest_at < age
            oldest, newest = self._writes or (row.newest_at, row.newest_at)
            self._writes = min(oldest, row.newest_at), max(newest, row.newest_at)

    def fields(self) -> dict[str, Any]:
        info, stats = self._summary.info, self._summary.stats
        oldest, newest = self._writes or (None, None)
        return {
            "queue": info.name,
            "namespace": tag_or_none(info.namespace),
            "task": tag_or_none(info.task),
            "partitions": stats.partitions,
            **self._live,
            "created24h": self._created,
            "oldestWriteAt": show_time(oldest),
            "newestWriteAt": show_time(newest),
            "pending": stats.pending,
        }
