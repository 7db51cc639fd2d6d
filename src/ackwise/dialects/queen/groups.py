"""`/api/v1/consumer-groups`: how far behind groups are, where they stand, and moving them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from typing import Any, Literal

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core.answers import Counted
from ackwise.core.commands import Command, ConfigureGroup, DeleteGroup, SeekGroup
from ackwise.core.errors import AckwiseError, BadInput, NotFound, UnknownGroup
from ackwise.core.limits import MICROS
from ackwise.dialects.http import Answer, Call, Route, answer, encode
from ackwise.dialects.pages import array, joined, pages, streamed
from ackwise.dialects.queen.asking import number_in, read_object, shape_of
from ackwise.dialects.queen.totals import time_lag
from ackwise.dialects.queen.words import Words, parse_time, show_time

LAGGING_AFTER = 300
"""Seconds that a group's oldest unfinished message may wait before it is called lagging."""
DEFAULT_MIN_LAG = 3600
LONGEST_LAG = 100 * 365 * 24 * 3600
_SUBSCRIPTIONS = {"all": "all", "new": "new", "from": "timestamp"}
Fields = dict[str, Any]


def routes(broker: AsyncBroker, words: Words) -> list[Route]:
    groups = Groups(broker, words)
    base = "/api/v1/consumer-groups"
    return [
        Route("GET", base, groups.every),
        Route("GET", f"{base}/lagging", groups.lagging),
        Route("GET", f"{base}/{{group}}", groups.show),
        Route("DELETE", f"{base}/{{group}}", groups.delete),
        Route("DELETE", f"{base}/{{group}}/queues/{{queue}}", groups.delete_in_queue),
        Route("POST", f"{base}/{{group}}/subscription", groups.subscribe),
        Route("POST", f"{base}/{{group}}/queues/{{queue}}/seek", groups.seek),
        Route("POST", f"{base}/{{group}}/queues/{{queue}}/partitions/{{partition}}/seek", groups.seek_partition),
    ]


class Groups:
    def __init__(self, broker: AsyncBroker, words: Words) -> None:
        self._broker, self._words = broker, words

    async def _stats(self, group: str | None = None, queue: str | None = None) -> list[q.GroupStats]:
        found: list[q.GroupStats] = await self._broker.ask(q.ListGroups(queue=queue, group=group))
        return found

    async def every(self, call: Call) -> Answer:
        """Stream one entry per group, or a bare array of one entry per group and queue, as upstream does."""
        as_array = shape_of(call, default="array" if self._words.upstream else "object") == "array"
        return await streamed(call, self._entries(as_array=as_array))

    async def _entries(self, *, as_array: bool) -> AsyncIterator[bytes]:
        before, end = (b"[", b"]") if as_array else (b'{"groups":[', b"]}")
        async for names in pages(self._broker, q.ListGroupNames(), list):
            for name in names:
                async for piece in self._rows(name) if as_array else self._entry(name):
                    # The page behind a full last page is empty.
                    if piece:
                        yield before + piece
                        before = b"," if as_array else b""
                before = before or b","
        yield (before if before != b"," else b"") + end

    def _rows(self, name: str) -> AsyncIterator[bytes]:
        """The group's entries, one for each queue."""
        now = self._broker.now()

        def shown(rows: Sequence[q.GroupStats]) -> bytes:
            return b",".join([encode(self._row(name, row, now)) for row in rows])

        return pages(self._broker, q.ListGroups(group=name), shown)

    def _row(self, name: str, group: q.GroupStats, now: int) -> Fields:
        over = _OverQueues()
        fields = over.add(*self._in_queue(group, now))
        return {"name": name, "queues": [fields], **over.shown()}

    def _entry(self, name: str) -> AsyncIterator[bytes]:
        over, now = _OverQueues(), self._broker.now()

        def shown(rows: Sequence[q.GroupStats]) -> bytes:
            return b",".join([encode(over.add(*self._in_queue(row, now))) for row in rows])

        found = pages(self._broker, q.ListGroups(group=name), shown)
        return array(found, b'{"name":%b,"queues":[' % encode(name), lambda: b"],%b" % encode(over.shown())[1:])

    def _in_queue(self, group: q.GroupStats, now: int) -> tuple[Fields, set[str]]:
        """A group's numbers in one queue, and its consumers there."""
        behind = time_lag(group.oldest_unfinished_at, now)
        members = self._words.members.of(group.queue, group.group, group.members, now)
        fields = {
            "queueName": group.queue,
            "members": len(members),
            "totalLag": group.lag,
            "maxTimeLag": behind,
            "state": _state(behind, alive=group.settled_at is not None or bool(members)),
            "partitions": group.partitions,
            "partitionsWithLag": group.partitions_behind,
            "totalConsumed": group.acked,
            "deadLetters": group.dead,
            "lastConsumedAt": show_time(group.settled_at),
            "subscriptionMode": _SUBSCRIPTIONS[group.mode],
            "subscriptionTimestamp": show_time(_subscribed_from(group)),
            "subscriptionCreatedAt": show_time(group.created_at),
        }
        return fields, members

    async def lagging(self, call: Call) -> Answer:
        now = self._broker.now()
        least = number_in(call.query, "minLagSeconds", DEFAULT_MIN_LAG, LONGEST_LAG, lenient=self._words.upstream)
        query = q.ListPlaces(unfinished_since=max(0, now - least * MICROS))
        return await streamed(call, array(pages(self._broker, query, joined(lambda place: _lagging(place, now)))))

    async def show(self, call: Call) -> Answer:
        by_queue = _ByQueue(self._broker.now(), self._words)

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in pages(self._broker, q.ListPlaces(group=call.params[0], last_done=True), by_queue.shown):
                yield piece
            yield by_queue.end()

        return await streamed(call, pieces())

    async def delete(self, call: Call) -> Answer:
        """Deleting a group that is not there is no error: it is gone."""
        return await self._delete(call, await self._stats(call.params[0]), {})

    async def delete_in_queue(self, call: Call) -> Answer:
        group, queue = call.params
        return await self._delete(call, await self._stats(group, queue), {"queueName": queue})

    async def _delete(self, call: Call, found: Sequence[q.GroupStats], more: Fields) -> Answer:
        """Without its metadata the subscription stays, and the group goes back to where that begins."""
        whole = call.query.get("deleteMetadata", "true") in ("true", "1")
        counts = await self._each([_delete(group) if whole else _start_over(group) for group in found])
        return answer(
            {
                "success": True,
                "consumerGroup": call.params[0],
                **more,
                "deletedPartitions": sum(count.count for count in counts),
                "metadataDeleted": whole,
            }
        )

    async def _each(self, commands: Sequence[Command]) -> list[Any]:
        """All in one turn. What is gone meanwhile needs no doing."""
        if not commands:
            return []
        answers = await self._broker.send_all(commands)
        for problem in answers:
            if isinstance(problem, AckwiseError) and not isinstance(problem, NotFound):
                raise problem
        return [one for one in answers if not isinstance(one, NotFound)]

    async def subscribe(self, call: Call) -> Answer:
        """Where the group's subscription begins from now on. It moves no cursor."""
        group = call.params[0]
        text = (await read_object(call)).get("subscriptionTimestamp")
        if not text:
            raise BadInput("subscriptionTimestamp is required")
        at = self._broker.now() if text == "now" else parse_time(text, "subscriptionTimestamp")
        found = await self._stats(group)
        if not found and not self._words.upstream:
            raise UnknownGroup(f"there is no consumer group {group!r}", group=group)
        done = await self._each([ConfigureGroup(queue=one.queue, group=group, start=at, restart=True) for one in found])
        return answer(
            {"success": True, "consumerGroup": group, "newTimestamp": show_time(at), "rowsUpdated": len(done)}
        )

    async def seek(self, call: Call) -> Answer:
        group, queue = call.params
        at = _target(await read_object(call))
        done: Counted = await self._broker.send(SeekGroup(queue=queue, group=group, to=_behind(at)))
        return answer(
            {
                "success": True,
                "consumerGroup": group,
                "queueName": queue,
                "seekToEnd": at == "end",
                "targetTimestamp": None if at == "end" else show_time(at),
                "partitionsUpdated": done.count,
            }
        )

    async def seek_partition(self, call: Call) -> Answer:
        group, queue, partition = call.params
        body = await read_object(call)
        at = _target(body) if body else "end"
        command = SeekGroup(queue=queue, group=group, to=_behind(at), partition=partition)
        done: Counted = await self._broker.send(command)
        return answer(
            {
                "success": True,
                "consumerGroup": group,
                "queueName": queue,
                "partitionName": partition,
                "cursorMovedTo": "end" if at == "end" else show_time(at),
                "updated": done.count > 0,
            }
        )


def _state(behind: int, *, alive: bool) -> str:
    """Dead: it never acked anything and nobody consumes for it."""
    if behind > LAGGING_AFTER:
        return "Lagging"
    return "Stable" if alive else "Dead"


class _OverQueues:
    """One group over its queues: sums, worst cases, and the first queue's value of fields without a sum.

    A consumer that polls several queues is one member.
    """

    def __init__(self) -> None:
        self._topics: list[str] = []
        self._sums = dict.fromkeys(("totalLag", "partitionsWithLag"), 0)
        self._members: set[str] = set()
        self._behind, self._alive = 0, False
        self._first: Fields = {}

    def add(self, fields: Fields, members: set[str]) -> Fields:
        self._members |= members
        self._first = self._first or fields
        self._topics.append(fields["queueName"])
        for name in self._sums:
            self._sums[name] += fields[name]
        self._behind = max(self._behind, fields["maxTimeLag"])
        self._alive = self._alive or fields["state"] != "Dead"
        return fields

    def shown(self) -> Fields:
        firsts = ("queueName", "subscriptionMode", "subscriptionTimestamp", "subscriptionCreatedAt")
        return {
            "topics": self._topics,
            "members": len(self._members),
            **self._sums,
            "maxTimeLag": self._behind,
            "state": _state(self._behind, alive=self._alive),
            **{name: self._first.get(name) for name in firsts},
        }


class _ByQueue:
    """`{"<queue>": {"partitions": […]}}` out of pages of places: a queue may begin in one page and end in another."""

    def __init__(self, now: int, words: Words) -> None:
        self._now, self._words = now, words
        self._queue: str | None = None

    def shown(self, places: Sequence[q.Place]) -> bytes:
        pieces = []
        for queue, rows in groupby(places, lambda place: place.queue):
            if queue == self._queue:
                pieces.append(b",")
            else:
                pieces.append((b"{" if self._queue is None else b"]},") + encode(queue) + b':{"partitions":[')
            self._queue = queue
            pieces.append(b",".join([encode(_place(place, self._now, self._words)) for place in rows]))
        return b"".join(pieces)

    def end(self) -> bytes:
        return b"{}" if self._queue is None else b"]}}"


def _lagging(place: q.Place, now: int) -> Fields:
    behind = time_lag(place.oldest_unfinished_at, now)
    return {
        "consumer_group": place.group,
        "queue_name": place.queue,
        "partition_name": place.partition,
        "partition_id": place.partition_id,
        "worker_id": place.lease.lease_id if place.lease else None,
        "offset_lag": place.lag,
        "time_lag_seconds": behind,
        "lag_hours": round(behind / 3600, 2),
        "oldest_unconsumed_at": show_time(place.oldest_unfinished_at),
        "last_consumed_at": show_time(place.settled_at),
    }


def _place(place: q.Place, now: int, words: Words) -> Fields:
    """A row of the seed's `partition_consumers`, with upstream's numbers beside it.

    The seed moves the cursor with every ack and nack. Upstream keeps it before the first unfinished message.
    """
    if words.upstream:
        last = (place.last_done_id, place.last_done_created_at, place.settled_at)
        consumed = place.acked
    else:
        last = (place.last_settled_id, place.last_settled_created_at, place.last_settled_at)
        consumed = place.acked + place.nacked
    lease = place.lease if place.lease is not None and place.lease.deadline > now else None
    return {
        "partition": place.partition,
        "partitionId": place.partition_id,
        "consumerGroup": place.group,
        "lastConsumedId": last[0],
        "lastConsumedCreatedAt": show_time(last[1]),
        "lastConsumedAt": show_time(last[2]),
        "totalMessagesConsumed": consumed,
        "totalConsumed": consumed,
        "deadLetters": place.dead,
        "workerId": lease.lease_id if lease else None,
        "leaseActive": lease is not None,
        "leaseAcquiredAt": show_time(lease.made_at) if lease else None,
        "leaseExpiresAt": show_time(lease.deadline) if lease else None,
        "batchSize": lease.granted if lease else 0,
        "ackedCount": lease.settled if lease else 0,
        "offsetLag": place.lag,
        "timeLagSeconds": time_lag(place.oldest_unfinished_at, now),
        "oldestUnconsumedAt": show_time(place.oldest_unfinished_at),
    }


def _subscribed_from(group: q.GroupStats) -> int | None:
    """The instant at which a subscription begins; everything has none."""
    return group.created_at if group.mode == "new" else group.from_at


def _delete(group: q.GroupStats) -> DeleteGroup:
    return DeleteGroup(queue=group.queue, group=group.group)


def _start_over(group: q.GroupStats) -> SeekGroup:
    at = _subscribed_from(group)
    return SeekGroup(queue=group.queue, group=group.group, to="start" if at is None else at)


def _target(body: Fields) -> Literal["end"] | int:
    """`{"toEnd": true}` or `{"timestamp": "…"}`."""
    to_end = body.get("toEnd")
    if to_end is not None and not isinstance(to_end, bool):
        raise BadInput(f"toEnd must be true or false, not {to_end!r:.40}")
    if to_end:
        return "end"
    if body.get("timestamp") is None:
        raise BadInput("toEnd or timestamp is required")
    return parse_time(body["timestamp"], "timestamp")


def _behind(at: Literal["end"] | int) -> Literal["end"] | int:
    """Queen puts the cursor on the last message at or before an instant: the next one comes after it."""
    return at if at == "end" else at + 1
