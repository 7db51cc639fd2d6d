"""`/api/v1/resources/…`: queues, partitions, namespaces and tasks in numbers. Counted when asked, never stale."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import cursors
from ackwise.core import queries as q
from ackwise.core.answers import QueueInfo
from ackwise.core.commands import DeleteQueue
from ackwise.core.errors import UnknownQueue
from ackwise.core.ids import uuid_int
from ackwise.core.limits import MICROS
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.queen_options import options_of
from ackwise.dialects.http import Answer, Call, Route, answer, encode
from ackwise.dialects.pages import array, pages, stream_list, streamed
from ackwise.dialects.queen.asking import number_in
from ackwise.dialects.queen.configuring import queue_id, tag
from ackwise.dialects.queen.totals import Numbers, Pending, Tags, Totals, six, stats_counts
from ackwise.dialects.queen.words import Words, show_time

_MINUTE = 60 * MICROS
MOST = 10_000
PARTITIONS = 2000
"""Partitions of one queue that one page reads. Each page counts the numbers of the queue again."""
Fold = TypeVar("Fold", Tags, Totals)


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

    def _summaries(self, call: Call) -> q.ListStats:
        return q.ListStats(namespace=call.query.get("namespace") or None, task=call.query.get("task") or None)

    async def _folded(self, call: Call, fold: Fold) -> Fold:
        """Sums over every queue, page by page, computed in a helper thread."""
        async for _ in pages(self._broker, self._summaries(call), fold.add):
            pass
        return fold

    async def _info(self, queue: str) -> QueueInfo:
        try:
            found: QueueInfo = await self._broker.ask(q.GetQueue(queue=queue))
        except UnknownQueue:
            raise UnknownQueue("Queue not found", queue=queue) from None
        return found

    async def queues(self, call: Call) -> Answer:
        """The whole list, or one page. With `limit` the answer has `nextAfter`, the `after` of the next page."""
        return await self._list(call, self._summaries(call), "queues", lambda row: _queue(row.info, row.stats), str)

    async def _list(self, call: Call, query: q.Query, name: str, show: Callable[[Any], Numbers], place: Any) -> Answer:
        if "after" in call.query:
            query = msgspec.structs.replace(query, after=cursors.parse(call.query["after"], place, "after"))
        if "limit" not in call.query:
            return await stream_list(call, self._broker, query, name, show)
        limit = number_in(call.query, "limit", MOST, MOST, least=1, lenient=self._words.upstream)

        def shown(rows: q.Page[Any]) -> bytes:
            return encode({name: [show(row) for row in rows], "nextAfter": cursors.text(rows.next)})

        async for page in pages(self._broker, query, shown, rows=limit, most=limit):
            return Answer(page)
        raise AssertionError("a list has at least one page")

    async def queue(self, call: Call) -> Answer:
        info = await self._info(call.params[0])
        head = {**_named(info), "paused": info.paused, "options": options_of(info.policy)}
        totals = six(0, 0, 0, 0, 0)

        def shown(rows: Iterable[q.PartitionRow]) -> bytes:
            pieces = []
            for row in rows:
                counts = _counts(row)
                for name in totals:
                    totals[name] += counts[name]
                pieces.append(encode(_partition(row)))
            return b",".join(pieces)

        return await streamed(
            call,
            array(
                pages(self._broker, q.ListPartitions(queue=info.name), shown, rows=PARTITIONS),
                b'%b,"partitions":[' % encode(head)[:-1],
                lambda: b'],"totals":%b}' % encode(totals),
            ),
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
        pending = Pending()
        async for _ in pages(self._broker, q.ListPlaces(queue=info.name, group=group), pending.add_places):
            pass
        if not pending.seen and (group == QUEUE_MODE or self._words.start == "all"):
            async for _ in pages(self._broker, q.ListPartitions(queue=info.name), pending.add_partitions):
                pass
        head = {"queue": info.name, "group": group, "conflation": False}
        return Answer(await self._broker.in_thread(pending.encoded, head))

    async def partitions(self, call: Call) -> Answer:
        queue = call.query.get("queue") or None
        if queue is not None:
            await self._info(queue)
        query = q.ListPartitions(queue=queue)
        return await self._list(
            call, query, "partitions", lambda row: {"queue": row.queue, **_partition(row)}, tuple[str, str]
        )

    async def namespaces(self, call: Call) -> Answer:
        fold = await self._folded(call, Tags("namespace", lambda info: info.namespace))
        return Answer(await self._broker.in_thread(fold.encoded, "namespaces"))

    async def tasks(self, call: Call) -> Answer:
        fold = await self._folded(call, Tags("task", lambda info: info.task))
        return Answer(await self._broker.in_thread(fold.encoded, "tasks"))

    async def overview(self, call: Call) -> Answer:
        return answer(await self._counted(call))

    async def refresh(self, call: Call) -> Answer:
        """There is nothing to refresh; the numbers are those of now."""
        return answer({"success": True, "refreshed": True, **await self._counted(call)})

    async def _counted(self, call: Call) -> Numbers:
        now = self._broker.now()
        totals = await self._folded(call, Totals(now))
        return {
            **await self._broker.in_thread(totals.shown),
            "throughput": await self._throughput(now),
            "statsAge": 0,
            "timestamp": show_time(now),
        }

    async def _throughput(self, now: int) -> Numbers:
        """Over the minute before this one and what there is of this one."""
        since = (now // _MINUTE - 1) * _MINUTE
        seconds = (now - since) / MICROS
        counted: dict[str, int] = {}

        def add(rows: Iterable[q.LedgerRow]) -> None:
            for row in rows:
                counted[row.outcome] = counted.get(row.outcome, 0) + row.count

        async for _ in pages(self._broker, q.ReadLedger(after_at=max(0, since)), add):
            pass

        def rate(outcome: str) -> float:
            return round(counted.get(outcome, 0) / seconds, 3)

        return {"ingestedPerSecond": rate("pushed"), "processedPerSecond": rate("acked")}


def _named(info: QueueInfo) -> Numbers:
    return {
        "id": queue_id(info),
        "name": info.name,
        "namespace": tag(info.namespace),
        "task": tag(info.task),
        "createdAt": show_time(info.created_at),
    }


def _queue(info: QueueInfo, stats: q.Stats) -> Numbers:
    return {**_named(info), "partitions": stats.partitions, "messages": stats_counts(stats)}


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
    return six(row.messages + row.scheduled, row.pending, row.processing, row.completed, row.dead)
