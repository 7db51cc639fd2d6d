"""`/api/v1/resources/…`: queues, partitions, namespaces and tasks in numbers. Counted when asked, never stale."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean, median
from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core.answers import QueueInfo
from ackwise.core.commands import DeleteQueue
from ackwise.core.errors import UnknownQueue
from ackwise.core.ids import uuid_int
from ackwise.core.limits import MICROS
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.queen_options import options_of
from ackwise.dialects.http import Answer, Call, Route, answer
from ackwise.dialects.queen.configuring import queue_id, tag
from ackwise.dialects.queen.words import Words, show_time

_MINUTE = 60 * MICROS
Numbers = dict[str, Any]


def routes(broker: AsyncBroker, words: Words) -> list[Route]:
    resources = Resources(broker, words)
    return [
        Route("GET", "/api/v1/resources/queues", resources.queues),
        Route("GET", "/api/v1/resources/queues/{queue}", resources.queue),
        Route("DELETE", "/api/v1/resources/queues/{queue}", resources.delete),
        Route("GET", "/api/v1/resources/queues/{queue}/depth", resources.depth),
        Route("GET", "/api/v1/resources/partitions", resources.partitions),
        Route("GET", "/api/v1/resources/namespaces", resources.namespaces),
        Route("GET", "/api/v1/resources/tasks", resources.tasks),
        Route("GET", "/api/v1/resources/overview", resources.overview),
        Route("POST", "/api/v1/stats/refresh", resources.refresh),
    ]


class Resources:
    def __init__(self, broker: AsyncBroker, words: Words) -> None:
        self._broker, self._words = broker, words

    async def _summaries(self, call: Call) -> list[q.QueueSummary]:
        namespace, task = call.query.get("namespace") or None, call.query.get("task") or None
        found: list[q.QueueSummary] = await self._broker.ask(q.ListStats(namespace=namespace, task=task))
        return found

    async def _info(self, queue: str) -> QueueInfo:
        try:
            found: QueueInfo = await self._broker.ask(q.GetQueue(queue=queue))
        except UnknownQueue:
            raise UnknownQueue("Queue not found", queue=queue) from None
        return found

    async def queues(self, call: Call) -> Answer:
        return answer({"queues": [_queue(row.info, row.stats) for row in await self._summaries(call)]})

    async def queue(self, call: Call) -> Answer:
        info = await self._info(call.params[0])
        rows: list[q.PartitionRow] = await self._broker.ask(q.ListPartitions(queue=info.name))
        return answer(
            {
                **_named(info),
                "paused": info.paused,
                "options": options_of(info.policy),
                "totals": _totals(rows),
                "partitions": [_partition(row) for row in rows],
            }
        )

    async def delete(self, call: Call) -> Answer:
        """Deleting what is not there is no error: it is gone."""
        try:
            await self._broker.send(DeleteQueue(queue=call.params[0]))
            existed = True
        except UnknownQueue:
            existed = False
        return answer({"deleted": existed, "existed": existed, "queue": call.params[0]})

    async def depth(self, call: Call) -> Answer:
        """What a group has not finished. A group that is not there yet would begin where a new one begins."""
        info = await self._info(call.params[0])
        group = call.query.get("group") or call.query.get("consumerGroup") or QUEUE_MODE
        places: list[q.Place] = await self._broker.ask(q.ListPlaces(queue=info.name, group=group))
        pending = {place.partition: place.lag for place in places}
        if not places and (group == QUEUE_MODE or self._words.start == "all"):
            rows: list[q.PartitionRow] = await self._broker.ask(q.ListPartitions(queue=info.name))
            pending = {row.partition: row.messages for row in rows}
        total, behind = sum(pending.values()), {name: lag for name, lag in pending.items() if lag}
        return answer(
            {
                "queue": info.name,
                "group": group,
                "pending": total,
                "partitionsPending": len(behind),
                "conflation": False,
                "effectivePending": total,
                "partitions": [{"partition": name, "pending": lag} for name, lag in behind.items()],
            }
        )

    async def partitions(self, call: Call) -> Answer:
        queue = call.query.get("queue") or None
        if queue is not None:
            await self._info(queue)
        rows: list[q.PartitionRow] = await self._broker.ask(q.ListPartitions(queue=queue))
        return answer({"partitions": [{"queue": row.queue, **_partition(row)} for row in rows]})

    async def namespaces(self, call: Call) -> Answer:
        return answer({"namespaces": _by_tag(await self._summaries(call), "namespace", lambda info: info.namespace)})

    async def tasks(self, call: Call) -> Answer:
        return answer({"tasks": _by_tag(await self._summaries(call), "task", lambda info: info.task)})

    async def overview(self, call: Call) -> Answer:
        return answer(await self._counted(call))

    async def refresh(self, call: Call) -> Answer:
        """There is nothing to refresh; the numbers are those of now."""
        return answer({"success": True, "refreshed": True, **await self._counted(call)})

    async def _counted(self, call: Call) -> Numbers:
        rows = await self._summaries(call)
        now = self._broker.now()
        groups = [group for row in rows for group in row.stats.groups]
        return {
            "queues": len(rows),
            "partitions": sum(row.stats.partitions for row in rows),
            "namespaces": len({row.info.namespace for row in rows if row.info.namespace}),
            "tasks": len({row.info.task for row in rows if row.info.task}),
            "consumerGroups": len({group.group for group in groups}),
            "messages": _sum([_stats(row.stats) for row in rows]),
            "lag": {
                "time": _spread([time_lag(group.oldest_unfinished_at, now) for group in groups]),
                "offset": _spread([group.lag for group in groups]),
            },
            "throughput": await self._throughput(now),
            "statsAge": 0,
            "timestamp": show_time(now),
        }

    async def _throughput(self, now: int) -> Numbers:
        """Over the minute before this one and what there is of this one."""
        since = (now // _MINUTE - 1) * _MINUTE
        rows: list[q.LedgerRow] = await self._broker.ask(q.ReadLedger(after_at=max(0, since)))
        seconds = (now - since) / MICROS

        def rate(outcome: str) -> float:
            return round(sum(row.count for row in rows if row.outcome == outcome) / seconds, 3)

        return {"ingestedPerSecond": rate("pushed"), "processedPerSecond": rate("acked")}


def time_lag(oldest_at: int | None, now: int) -> int:
    """Whole seconds that the oldest unfinished message has waited."""
    return 0 if oldest_at is None else max(0, (now - oldest_at) // MICROS)


def _named(info: QueueInfo) -> Numbers:
    return {
        "id": queue_id(info),
        "name": info.name,
        "namespace": tag(info.namespace),
        "task": tag(info.task),
        "createdAt": show_time(info.created_at),
    }


def _queue(info: QueueInfo, stats: q.Stats) -> Numbers:
    return {**_named(info), "partitions": stats.partitions, "messages": _stats(stats)}


def _six(total: int, pending: int, processing: int, completed: int, dead: int) -> Numbers:
    """Queen's six counts. A failed message is pending again or a dead letter: none stays `failed`."""
    return {
        "total": total,
        "pending": pending,
        "processing": processing,
        "completed": completed,
        "failed": 0,
        "deadLetter": dead,
    }


def _stats(stats: q.Stats) -> Numbers:
    return _six(stats.messages + stats.scheduled, stats.pending, stats.processing, stats.completed, stats.dead)


def _partition(row: q.PartitionRow) -> Numbers:
    made = uuid_int(row.partition_id)
    return {
        "id": row.partition_id,
        "name": row.partition,
        "createdAt": show_time((made >> 80) * 1000) if made is not None else None,
        "stats": _counts(row),
        "oldestMessage": show_time(row.oldest_at),
        "newestMessage": show_time(row.newest_at),
    }


def _counts(row: q.PartitionRow) -> Numbers:
    return _six(row.messages + row.scheduled, row.pending, row.processing, row.completed, row.dead)


def _totals(rows: Iterable[q.PartitionRow]) -> Numbers:
    return _sum([_counts(row) for row in rows])


def _sum(counts: list[Numbers]) -> Numbers:
    return {name: sum(one[name] for one in counts) for name in _six(0, 0, 0, 0, 0)}


def _by_tag(rows: list[q.QueueSummary], word: str, key: Callable[[QueueInfo], str]) -> list[Numbers]:
    """Queues summed by a tag; those without one belong to none."""
    names = sorted({key(row.info) for row in rows if key(row.info)})
    found = []
    for name in names:
        mine = [row.stats for row in rows if key(row.info) == name]
        found.append(
            {
                word: name,
                "queues": len(mine),
                "partitions": sum(stats.partitions for stats in mine),
                "messages": _sum([_stats(stats) for stats in mine]),
            }
        )
    return found


def _spread(values: list[int]) -> Numbers:
    values = values or [0]
    return {"avg": round(fmean(values), 3), "median": median(values), "min": min(values), "max": max(values)}
