"""`/status` and `/api/v1/status/…`: throughput, counts of queues and partitions, and messages per interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core import validation
from ackwise.core.answers import QueueInfo
from ackwise.core.errors import UnknownQueue
from ackwise.core.ids import uuid_int
from ackwise.core.queen_queries import TotalLedger
from ackwise.core.rows import DeadPage, Page, PartitionRow, QueueSummary
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer, encode
from ackwise.protocols.queen.configure import queue_id, tag_or_none
from ackwise.protocols.queen.dead_letters import error_of
from ackwise.protocols.queen.process_stats import hostname, process_stats
from ackwise.protocols.queen.time_series import DAY, Counts, Window, by_bucket, rate, sample_of, total_of, window_of
from ackwise.protocols.queen.totals import Fields, message_counts, stats_counts, summed
from ackwise.protocols.queen.vocabulary import QueenContext, number_in, show_time
from ackwise.protocols.streamed_lists import array, joined, pages, streamed
from ackwise.wire.queen_options import options_of

PARTITIONS = 2000
MOST = 1000
FURTHEST = 1_000_000
SAMPLED_LETTERS = 100
"""Number of newest dead letters whose errors the status counts."""
TOP_ERRORS = 5
_INTERVALS = {"minute": 1, "hour": 60, "day": 24 * 60}
_CONFIG = ("leaseTime", "retryLimit", "retryDelay", "ttl", "maxSize", "deadLetterQueue")


Tags = dict[str, str | None]
"""The queue, the namespace and the task that a request names."""


def routes(broker: AsyncBroker, context: QueenContext) -> list[Route]:
    status = StatusRoutes(broker, context)
    return [
        Route("GET", "/status", status.alive),
        Route("GET", "/api/v1/status", status.show),
        Route("GET", "/api/v1/status/queues", status.queues),
        Route("GET", "/api/v1/status/queues/{queue}", status.queue),
        Route("GET", "/api/v1/status/analytics", status.analytics),
    ]


def tags_of(query: dict[str, str]) -> Tags:
    """The queue, the namespace and the task that a request names."""
    return {name: query.get(name) or None for name in ("queue", "namespace", "task")}


async def bucket_counts(broker: AsyncBroker, window: Window, tags: Tags) -> dict[int, Counts]:
    query = TotalLedger(
        after_at=window.start,
        before_at=window.end,
        minutes=window.minutes,
        queue=tags["queue"],
        namespace=tags["namespace"],
        task=tags["task"],
    )
    return by_bucket(await broker.ask(query))


class StatusRoutes:
    """Handlers of the status routes."""

    def __init__(self, broker: AsyncBroker, context: QueenContext) -> None:
        self._broker, self._upstream = broker, context.upstream

    async def alive(self, _: Call) -> Answer:
        """Shows that the process answers. Does not read the store."""
        return answer({"status": "ok", "engine": "ackwise"})

    async def show(self, call: Call) -> Answer:
        broker, tags = self._broker, tags_of(call.query)
        window = window_of(call.query, broker.wall())
        counts = await bucket_counts(broker, window, tags)
        letters = await self._newest_letters(tags)
        totals = _StatusTotals(counts, letters)
        points = [_point(start, counts.get(start), window) for start in window.buckets()]
        head = {
            "timeRange": window.fields(),
            "bucketMinutes": window.minutes,
            "pointCount": len(points),
            "throughput": points,
        }
        tail = self._worker()
        return await streamed(
            call,
            array(
                self._summaries(tags, totals),
                b'%b,"queues":[' % encode(head)[:-1],
                lambda: b"],%b" % encode({**totals.fields(), "workers": [tail], "statsAge": 0})[1:],
            ),
        )

    def _summaries(self, tags: Tags, totals: _StatusTotals) -> Any:
        query = q.ListStats(namespace=tags["namespace"], task=tags["task"])
        return pages(self._broker, query, lambda rows: totals.write([row for row in rows if _matches(row, tags)]))

    async def _newest_letters(self, tags: Tags) -> DeadPage | None:
        """The newest dead letters, up to a bound. None for a namespace or task: dead letters have neither."""
        if tags["namespace"] or tags["task"]:
            return None
        try:
            return await self._broker.ask(q.ListDead(queue=tags["queue"], limit=SAMPLED_LETTERS))
        except UnknownQueue:
            return None

    def _worker(self) -> Fields:
        return {
            "hostname": hostname(),
            "workerId": self._broker.store.traits.instance,
            "avgEventLoopLagMs": None,
            "maxEventLoopLagMs": None,
            "freeSlots": None,
            "dbConnections": None,
            "jobQueueSize": None,
            "messagesProcessed": None,
            "uptimeSeconds": round(process_stats().uptime, 3),
        }

    async def queues(self, call: Call) -> Answer:
        """Lists queues with their counts, one page by `limit` and `offset`."""
        tags = tags_of(call.query)
        limit = number_in(call.query, "limit", 100, MOST, least=1, lenient=self._upstream)
        offset = number_in(call.query, "offset", 0, FURTHEST, lenient=self._upstream)
        tail = b'],"pagination":%b}' % encode({"limit": limit, "offset": offset})
        head = b'{"queues":['
        if tags["queue"] is not None:
            row = await self._summary(tags["queue"])
            body = encode(_queue(row)) if row is not None and not offset and _matches(row, tags) else b""
            return Answer(head + body + tail)
        after = await self._name_before(tags, offset)
        if after is None:
            return Answer(head + tail)
        query = q.ListStats(namespace=tags["namespace"], task=tags["task"], after=after)
        pieces = pages(self._broker, query, joined(_queue), most=limit)
        return await streamed(call, array(pieces, head, lambda: tail))

    async def _summary(self, queue: str) -> QueueSummary | None:
        try:
            info = await self._broker.ask(q.GetQueue(queue=queue))
            return QueueSummary(info, await self._broker.ask(q.QueueStats(queue=queue)))
        except UnknownQueue:
            return None

    async def _name_before(self, tags: Tags, offset: int) -> str | None:
        """Name of the last queue that `offset` skips, empty without an offset. None if there are fewer queues."""
        if not offset:
            return ""
        seen, last = 0, ""

        def count(rows: Page[QueueInfo]) -> tuple[int, str]:
            return len(rows), rows[-1].name if rows else ""

        query = q.ListQueues(namespace=tags["namespace"], task=tags["task"])
        async for number, name in pages(self._broker, query, count, rows=MOST, most=offset):
            seen, last = seen + number, name or last
        return last if seen == offset else None

    async def queue(self, call: Call) -> Answer:
        try:
            info = await self._broker.ask(q.GetQueue(queue=call.params[0]))
        except UnknownQueue:
            raise UnknownQueue("Queue not found", queue=call.params[0]) from None
        totals = message_counts(0, 0, 0, 0, 0)

        def write(rows: Iterable[PartitionRow]) -> bytes:
            pieces = []
            for row in rows:
                fields = _partition(row)
                for name in totals:
                    totals[name] += fields["messages"][name]
                pieces.append(encode(fields))
            return b",".join(pieces)

        return await streamed(
            call,
            array(
                pages(self._broker, q.ListPartitions(queue=info.name), write, rows=PARTITIONS),
                b'{"queue":%b,"partitions":[' % encode(_queue_detail(info)),
                lambda: b'],"totals":%b}' % encode({"messages": totals, **totals}),
            ),
        )

    async def analytics(self, call: Call) -> Answer:
        """Pushed messages per minute, hour or day."""
        interval = call.query.get("interval", "hour")
        interval = interval if interval in _INTERVALS else "hour"
        window = window_of(call.query, self._broker.wall(), default=DAY, minutes=_INTERVALS[interval])
        counts = await bucket_counts(self._broker, window, tags_of(call.query))

        def write() -> bytes:
            points = [
                {"timestamp": show_time(start), "messages": sample_of(counts.get(start)).pushed}
                for start in window.buckets()
            ]
            return encode({**window.fields(), "interval": interval, "dataPoints": points})

        await call.reserve(validation.ANSWER_BYTES)
        return Answer(await self._broker.in_thread(write))


def _matches(row: QueueSummary, tags: Tags) -> bool:
    shown = {"queue": row.info.name, "namespace": row.info.namespace, "task": row.info.task}
    return all(wanted is None or shown[name] == wanted for name, wanted in tags.items())


def _point(start: int, counts: Counts | None, window: Window) -> Fields:
    """One bucket. The ledger has no deliveries, lags or loads, so these fields are null."""
    sample = sample_of(counts)
    return {
        "timestamp": show_time(start),
        "ingested": sample.pushed,
        "processed": sample.acked,
        "popMessages": None,
        "ingestedPerSecond": rate(sample.pushed, window.seconds),
        "processedPerSecond": rate(sample.acked, window.seconds),
        "popPerSecond": None,
        "avgLagMs": None,
        "maxLagMs": None,
        "avgEventLoopLagMs": None,
        "maxEventLoopLagMs": None,
        "minFreeSlots": None,
        "dbErrors": None,
        "ackFailed": sample.failed,
        "dlqCount": sample.dead,
        "queenCpuUserPct": None,
        "queenCpuSysPct": None,
        "queenRssMb": None,
        "dbPoolActive": None,
        "dbPoolIdle": None,
        "dbPoolSize": None,
    }


class _StatusTotals:
    """Totals over the queues that a status lists, and over its window."""

    def __init__(self, counts: dict[int, Counts], letters: DeadPage | None) -> None:
        self._sample = sample_of(total_of(counts))
        self._letters = letters
        self._messages = message_counts(0, 0, 0, 0, 0)
        self._dead = self._leases = self._leased = 0

    def write(self, rows: Sequence[QueueSummary]) -> bytes:
        for row in rows:
            self._messages = summed((self._messages, stats_counts(row.stats)))
            self._dead += row.stats.dead
            self._leases += sum(group.leases for group in row.stats.groups)
            self._leased += sum(group.leased for group in row.stats.groups)
        return b",".join([encode(_status_queue(row)) for row in rows])

    def fields(self) -> Fields:
        none = {"push": None, "pop": None, "ack": None}
        errors = Counter(error_of(letter)[:120] for letter in self._letters.letters) if self._letters else Counter()
        return {
            "messages": {**self._messages, "requests": none, "batchEfficiency": none},
            "leases": {
                "active": self._leases,
                "partitionsWithLeases": None,
                "totalBatchSize": self._leased,
                "totalAcked": None,
            },
            "deadLetterQueue": {
                "totalMessages": self._dead,
                "affectedPartitions": None,
                "topErrors": [{"error": text, "count": count} for text, count in errors.most_common(TOP_ERRORS)],
            },
            "errors": {
                "dbErrors": None,
                "ackFailed": self._sample.failed,
                "dlqMessages": self._sample.dead,
            },
        }


def _status_queue(row: QueueSummary) -> Fields:
    return {
        "id": queue_id(row.info),
        "name": row.info.name,
        "namespace": tag_or_none(row.info.namespace),
        "task": tag_or_none(row.info.task),
        "partitions": row.stats.partitions,
        "totalConsumed": sum(group.acked for group in row.stats.groups),
    }


def _queue(row: QueueSummary) -> Fields:
    return {
        "id": queue_id(row.info),
        "name": row.info.name,
        "namespace": tag_or_none(row.info.namespace),
        "task": tag_or_none(row.info.task),
        "createdAt": show_time(row.info.created_at),
        "partitions": row.stats.partitions,
        "messages": stats_counts(row.stats),
    }


def _queue_detail(info: QueueInfo) -> Fields:
    options = options_of(info.policy)
    config = {name: options.get(name) for name in _CONFIG}
    return {
        "id": queue_id(info),
        "name": info.name,
        "namespace": tag_or_none(info.namespace),
        "task": tag_or_none(info.task),
        "priority": options["priority"],
        "createdAt": show_time(info.created_at),
        "config": {**config, "maxQueueSize": config.pop("maxSize")},
    }


def _partition(row: PartitionRow) -> Fields:
    number = uuid_int(row.partition_id)
    counts = message_counts(row.messages + row.scheduled, row.pending, row.processing, row.completed, row.dead)
    return {
        "id": row.partition_id,
        "name": row.partition,
        "createdAt": show_time((number >> 80) * 1000) if number is not None else None,
        "messages": counts,
        "stats": counts,
        "cursor": {"totalConsumed": None, "batchesConsumed": None},
        "lastActivity": show_time(row.newest_at),
        "oldestMessage": show_time(row.oldest_at),
        "newestMessage": show_time(row.newest_at),
    }
