"""`/consumer-groups`: lag, subscriptions, seek and deletion of consumer groups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, TypeVar

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core.commands import Command, ConfigureGroup, DeleteGroup, SeekGroup
from ackwise.core.errors import AckwiseError, BadInput, NotFound, UnknownGroup
from ackwise.core.rows import GroupStats, Place
from ackwise.core.validation import MICROS
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer, encode
from ackwise.protocols.queen.totals import time_lag
from ackwise.protocols.queen.vocabulary import QueenContext, number_in, parse_time, read_object, shape_of, show_time
from ackwise.protocols.streamed_lists import array, joined, pages, streamed

LAGGING_AFTER = 300
"""Seconds after which an unfinished message makes its group `Lagging`."""
DEFAULT_MIN_LAG = 3600
LONGEST_LAG = 100 * 365 * 24 * 3600
QUEUES_AT_ONCE = 100
"""Maximum number of queues that one turn changes."""
PARTITIONS_AT_ONCE = 1000
"""Maximum number of partitions of these queues together. A queue with more partitions has its own turn."""
_SUBSCRIPTIONS = {"all": "all", "new": "new", "from": "timestamp"}
A = TypeVar("A")
Fields = dict[str, Any]


def routes(broker: AsyncBroker, context: QueenContext) -> list[Route]:
    groups = Groups(broker, context)
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
    """Handlers of the consumer-group routes."""

    def __init__(self, broker: AsyncBroker, context: QueenContext) -> None:
        self._broker, self._context = broker, context

    async def _stats(self, group: str | None = None, queue: str | None = None) -> list[GroupStats]:
        rows = await self._broker.ask(q.ListGroups(queue=queue, group=group))
        return rows

    async def every(self, call: Call) -> Answer:
        """Streams one entry per group. In upstream mode, streams an array with one entry per group and queue."""
        as_array = shape_of(call, default="array" if self._context.upstream else "object") == "array"
        return await streamed(call, array(self._all_rows()) if as_array else self._all_entries())

    async def _names(self) -> AsyncIterator[str]:
        async for names in pages(self._broker, q.ListGroupNames(), list):
            for name in names:
                yield name

    async def _all_rows(self) -> AsyncIterator[bytes]:
        async for name in self._names():
            async for piece in self._rows(name):
                yield piece

    async def _all_entries(self) -> AsyncIterator[bytes]:
        before = b'{"groups":['
        async for name in self._names():
            async for piece in self._entry(name):
                yield before + piece
                before = b""
            before = b","
        yield (before if before != b"," else b"") + b"]}"

    def _rows(self, name: str) -> AsyncIterator[bytes]:
        """The group's entries, one per queue."""
        now = self._broker.wall()

        def write_rows(rows: Sequence[GroupStats]) -> bytes:
            return b",".join([encode(self._row(name, row, now)) for row in rows])

        return pages(self._broker, q.ListGroups(group=name), write_rows)

    def _row(self, name: str, group: GroupStats, now: int) -> Fields:
        totals = _GroupTotals()
        fields = totals.add(*self._in_queue(group, now))
        return {"name": name, "queues": [fields], **totals.fields()}

    def _entry(self, name: str) -> AsyncIterator[bytes]:
        totals, now = _GroupTotals(), self._broker.wall()

        def write_rows(rows: Sequence[GroupStats]) -> bytes:
            return b",".join([encode(totals.add(*self._in_queue(row, now))) for row in rows])

        pieces = pages(self._broker, q.ListGroups(group=name), write_rows)
        return array(pieces, b'{"name":%b,"queues":[' % encode(name), lambda: b"],%b" % encode(totals.fields())[1:])

    def _in_queue(self, group: GroupStats, now: int) -> tuple[Fields, set[str]]:
        """A group's fields in one queue, and its consumers there."""
        behind = time_lag(group.oldest_unfinished_at, now)
        members = self._context.consumers.of(group.queue, group.group, group.members, self._broker.now())
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
        now = self._broker.wall()
        least = number_in(call.query, "minLagSeconds", DEFAULT_MIN_LAG, LONGEST_LAG, lenient=self._context.upstream)
        query = q.ListPlaces(unfinished_since=max(0, now - least * MICROS))
        return await streamed(call, array(pages(self._broker, query, joined(lambda place: _lagging(place, now)))))

    async def show(self, call: Call) -> Answer:
        by_queue = _ByQueue(self._broker.wall(), self._context)

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in pages(self._broker, q.ListPlaces(group=call.params[0], last_done=True), by_queue.write):
                yield piece
            yield by_queue.end()

        return await streamed(call, pieces())

    async def delete(self, call: Call) -> Answer:
        """Deletes a group in all its queues. Succeeds also if the group does not exist."""
        return await self._delete(call, await self._stats(call.params[0]), {})

    async def delete_in_queue(self, call: Call) -> Answer:
        group, queue = call.params
        return await self._delete(call, await self._stats(group, queue), {"queueName": queue})

    async def _delete(self, call: Call, groups: Sequence[GroupStats], more: Fields) -> Answer:
        """Deletes the groups. With `deleteMetadata=false`, moves them back to the start of their subscription."""
        whole = call.query.get("deleteMetadata", "true") in ("true", "1")
        counts = await self._send_all(groups, _delete if whole else _start_over)
        return answer(
            {
                "success": True,
                "consumerGroup": call.params[0],
                **more,
                "deletedPartitions": sum(count.count for count in counts),
                "metadataDeleted": whole,
            }
        )

    async def _send_all(self, groups: Sequence[GroupStats], command: Callable[[GroupStats], Command[A]]) -> list[A]:
        """Sends one command for each queue of a group, in several turns. Skips groups that were deleted meanwhile.

        The first error ends the call. Queues that were changed before stay changed. A repeated call succeeds for all:
        it deletes what is left, or sets the same position again.
        """
        answers: list[A] = []
        for chunk in _chunks(groups):
            for reply in await self._broker.send_all([command(group) for group in chunk]):
                if not isinstance(reply, AckwiseError):
                    answers.append(reply)
                elif not isinstance(reply, NotFound):
                    raise reply
        return answers

    async def subscribe(self, call: Call) -> Answer:
        """Sets where the group's subscription begins. Does not move cursors."""
        group = call.params[0]
        text = (await read_object(call)).get("subscriptionTimestamp")
        if not text:
            raise BadInput("subscriptionTimestamp is required")
        at = self._broker.wall() if text == "now" else parse_time(text, "subscriptionTimestamp")
        rows = await self._stats(group)
        if not rows and not self._context.upstream:
            raise UnknownGroup(f"there is no consumer group {group!r}", group=group)
        done = await self._send_all(
            rows, lambda row: ConfigureGroup(queue=row.queue, group=group, start=at, restart=True)
        )
        return answer(
            {"success": True, "consumerGroup": group, "newTimestamp": show_time(at), "rowsUpdated": len(done)}
        )

    async def seek(self, call: Call) -> Answer:
        group, queue = call.params
        at = _target(await read_object(call))
        done = await self._broker.send(SeekGroup(queue=queue, group=group, to=_cursor_after(at)))
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
        command = SeekGroup(queue=queue, group=group, to=_cursor_after(at), partition=partition)
        done = await self._broker.send(command)
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


def _chunks(groups: Sequence[GroupStats]) -> Iterator[list[GroupStats]]:
    """Groups of queues that one turn changes together: bounded in queues and in partitions."""
    chunk: list[GroupStats] = []
    partitions = 0
    for group in groups:
        partitions += group.partitions
        if chunk and (len(chunk) == QUEUES_AT_ONCE or partitions > PARTITIONS_AT_ONCE):
            yield chunk
            chunk, partitions = [], group.partitions
        chunk.append(group)
    if chunk:
        yield chunk


def _state(behind: int, *, alive: bool) -> str:
    """State of a group. `Dead` means that the group has no consumers and has never settled a message."""
    if behind > LAGGING_AFTER:
        return "Lagging"
    return "Stable" if alive else "Dead"


class _GroupTotals:
    """Totals of one group over its queues. Fields that cannot be summed have the first queue's value.

    A consumer that polls several queues counts as one member.
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

    def fields(self) -> Fields:
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
    """Writes pages of partition rows as `{"<queue>": {"partitions": […]}}`. A queue may span several pages."""

    def __init__(self, now: int, context: QueenContext) -> None:
        self._now, self._context = now, context
        self._queue: str | None = None

    def write(self, places: Sequence[Place]) -> bytes:
        pieces = []
        for queue, rows in groupby(places, lambda place: place.queue):
            if queue == self._queue:
                pieces.append(b",")
            else:
                pieces.append((b"{" if self._queue is None else b"]},") + encode(queue) + b':{"partitions":[')
            self._queue = queue
            pieces.append(b",".join([encode(_place(place, self._now, self._context)) for place in rows]))
        return b"".join(pieces)

    def end(self) -> bytes:
        return b"{}" if self._queue is None else b"]}}"


def _lagging(place: Place, now: int) -> Fields:
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


def _place(place: Place, now: int, context: QueenContext) -> Fields:
    """A row of the seed's table `partition_consumers`, with upstream's fields added.

    The seed moves the cursor with every ack and nack. Upstream keeps the cursor before the first unfinished message.
    """
    if context.upstream:
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


def _subscribed_from(group: GroupStats) -> int | None:
    """Time at which a subscription begins. None if it begins at the oldest message."""
    return group.created_at if group.mode == "new" else group.from_at


def _delete(group: GroupStats) -> DeleteGroup:
    return DeleteGroup(queue=group.queue, group=group.group)


def _start_over(group: GroupStats) -> SeekGroup:
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


def _cursor_after(at: Literal["end"] | int) -> Literal["end"] | int:
    """Instant at which the group continues. Queen's seek skips messages at or before the given time."""
    return at if at == "end" else at + 1
