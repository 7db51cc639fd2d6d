"""`/api/v1/resources/…`: counts of queues, partitions, namespaces and tasks, computed for each request."""

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
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.rows import LedgerRow, Page, PartitionRow, Stats
from ackwise.core.validation import MICROS
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer, encode
from ackwise.protocols.queen.configure import queue_id, tag_or_none
from ackwise.protocols.queen.kept_totals import CountedTotals, KeptTotals
from ackwise.protocols.queen.totals import Fields, Pending, QueenTotals, TagTotals, message_counts, stats_counts
from ackwise.protocols.queen.vocabulary import QueenContext, number_in, show_time
from ackwise.protocols.streamed_lists import array, pages, stream_list, streamed
from ackwise.wire.queen_options import options_of

_MINUTE = 60 * MICROS
MOST = 10_000
PARTITIONS = 2000
"""Maximum number of partitions of one queue that one page reads. Each page computes the queue's numbers again."""
Fold = TypeVar("Fold", TagTotals, QueenTotals)


def routes(broker: AsyncBroker, context: QueenContext) -> list[Route]:
    resources = Resources(broker, context)
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
    """Handlers of the resource routes."""

    def __init__(self, broker: AsyncBroker, context: QueenContext) -> None:
        self._broker, self._context = broker, context
        self._totals = KeptTotals()

    def _summaries(self, call: Call) -> q.ListStats:
        return q.ListStats(namespace=call.query.get("namespace") or None, task=call.query.get("task") or None)

    async def _folded(self, call: Call, fold: Fold) -> Fold:
        """Adds all queues to the fold, page by page, in a helper thread."""
        async for _ in pages(self._broker, self._summaries(call), fold.add):
            pass
        return fold

    async def _info(self, queue: str) -> QueueInfo:
        try:
            info = await self._broker.ask(q.GetQueue(queue=queue))
        except UnknownQueue:
            raise UnknownQueue("Queue not found", queue=queue) from None
        return info

    async def queues(self, call: Call) -> Answer:
        """Lists all queues, or one page of them. With `limit` the answer has `nextAfter` for the next page."""
        return await self._list(call, self._summaries(call), "queues", lambda row: _queue(row.info, row.stats), str)

    async def _list(
        self, call: Call, query: q.Query, name: str, show: Callable[[Any], Fields], cursor_type: Any
    ) -> Answer:
        if "after" in call.query:
            query = msgspec.structs.replace(query, after=cursors.parse(call.query["after"], cursor_type, "after"))
        if "limit" not in call.query:
            return await stream_list(call, self._broker, query, name, show)
        limit = number_in(call.query, "limit", MOST, MOST, least=1, lenient=self._context.upstream)

        def write_page(rows: Page[Any]) -> bytes:
            return encode({name: [show(row) for row in rows], "nextAfter": cursors.text(rows.next)})

        async for page in pages(self._broker, query, write_page, rows=limit, most=limit):
            return Answer(page)
        raise AssertionError("a list has at least one page")

    async def queue(self, call: Call) -> Answer:
        info = await self._info(call.params[0])
        head = {**_queue_fields(info), "paused": info.paused, "options": options_of(info.policy)}
        totals = message_counts(0, 0, 0, 0, 0)

        def write_rows(rows: Iterable[PartitionRow]) -> bytes:
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
                pages(self._broker, q.ListPartitions(queue=info.name), write_rows, rows=PARTITIONS),
                b'%b,"partitions":[' % encode(head)[:-1],
                lambda: b'],"totals":%b}' % encode(totals),
            ),
        )

    async def delete(self, call: Call) -> Answer:
        """Deletes a queue. Succeeds also if the queue does not exist."""
        try:
            await self._broker.send(DeleteQueue(queue=call.params[0]))
            existed = True
        except UnknownQueue:
            existed = False
        return answer({"deleted": existed, "existed": existed, "queue": call.params[0]})

    async def depth(self, call: Call) -> Answer:
        """Counts messages that a group has not finished. For an unknown group, counts what a new group would get."""
        info = await self._info(call.params[0])
        group = call.query.get("group") or call.query.get("consumerGroup") or QUEUE_MODE
        pending = Pending()
        async for _ in pages(self._broker, q.ListPlaces(queue=info.name, group=group), pending.add_places):
            pass
        if not pending.seen and (group == QUEUE_MODE or self._context.start == "all"):
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
        return await self._tags(call, "namespaces", TagTotals("namespace", lambda info: info.namespace))

    async def tasks(self, call: Call) -> Answer:
        return await self._tags(call, "tasks", TagTotals("task", lambda info: info.task))

    async def _tags(self, call: Call, name: str, fold: TagTotals) -> Answer:
        async def count() -> CountedTotals:
            await self._folded(call, fold)
            return CountedTotals(fold.queues, await self._broker.in_thread(fold.encoded, name))

        body, _ = await self._totals.get(self._key(call, name), count)
        return Answer(body)

    def _key(self, call: Call, name: str) -> tuple[str | None, ...]:
        query = self._summaries(call)
        return name, query.namespace, query.task

    async def overview(self, call: Call) -> Answer:
        return answer(await self._counted(call, fresh=False))

    async def refresh(self, call: Call) -> Answer:
        """Answers the current counts, also in a store of many queues."""
        return answer({"success": True, "refreshed": True, **await self._counted(call, fresh=True)})

    async def _counted(self, call: Call, *, fresh: bool) -> Fields:
        async def count() -> CountedTotals:
            now = self._broker.wall()
            totals = await self._folded(call, QueenTotals(now))
            fields = await self._broker.in_thread(totals.fields)
            return CountedTotals(
                fields["queues"],
                {**fields, "throughput": await self._throughput(now), "timestamp": show_time(now)},
            )

        fields, age = await self._totals.get(self._key(call, "overview"), count, fresh=fresh)
        return {**fields, "statsAge": int(age)}

    async def _throughput(self, now: int) -> Fields:
        """Rates over the previous minute and the current one so far."""
        since = (now // _MINUTE - 1) * _MINUTE
        seconds = (now - since) / MICROS
        counted: dict[str, int] = {}

        def add(rows: Iterable[LedgerRow]) -> None:
            for row in rows:
                counted[row.outcome] = counted.get(row.outcome, 0) + row.count

        async for _ in pages(self._broker, q.ReadLedger(after_at=max(0, since)), add):
            pass

        def rate(outcome: str) -> float:
            return round(counted.get(outcome, 0) / seconds, 3)

        return {"ingestedPerSecond": rate("pushed"), "processedPerSecond": rate("acked")}


def _queue_fields(info: QueueInfo) -> Fields:
    return {
        "id": queue_id(info),
        "name": info.name,
        "namespace": tag_or_none(info.namespace),
        "task": tag_or_none(info.task),
        "createdAt": show_time(info.created_at),
    }


def _queue(info: QueueInfo, stats: Stats) -> Fields:
    return {**_queue_fields(info), "partitions": stats.partitions, "messages": stats_counts(stats)}


def _partition(row: PartitionRow) -> Fields:
    number = uuid_int(row.partition_id)
    return {
        "id": row.partition_id,
        "name": row.partition,
        "createdAt": show_time((number >> 80) * 1000) if number is not None else None,
        "stats": _counts(row),
        "oldestMessage": show_time(row.oldest_at),
        "newestMessage": show_time(row.newest_at),
    }


def _counts(row: PartitionRow) -> Fields:
    return message_counts(row.messages + row.scheduled, row.pending, row.processing, row.completed, row.dead)
