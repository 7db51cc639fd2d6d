"""`/api/v1/consumer-groups`: how far behind groups are, where they stand, and moving them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core.answers import Counted
from ackwise.core.commands import Command, ConfigureGroup, DeleteGroup, SeekGroup
from ackwise.core.errors import AckwiseError, BadInput, NotFound, UnknownGroup
from ackwise.core.limits import MICROS
from ackwise.dialects.http import Answer, Call, Route, answer
from ackwise.dialects.queen.asking import number_in, read_object, shape_of
from ackwise.dialects.queen.resources import time_lag
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
        """One entry per group; or a bare array, one entry per group and queue, as upstream has it."""
        as_array = shape_of(call, default="array" if self._words.upstream else "object") == "array"
        now = self._broker.now()
        by_name: dict[str, list[tuple[Fields, set[str]]]] = {}
        for group in await self._stats():
            by_name.setdefault(group.group, []).append(self._in_queue(group, now))
        groups = sorted(by_name.items())
        if as_array:
            return answer([_over_queues(name, [one]) for name, queues in groups for one in queues])
        return answer({"groups": [_over_queues(name, queues) for name, queues in groups]})

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
        places: list[q.Place] = await self._broker.ask(q.ListPlaces(unfinished_since=max(0, now - least * MICROS)))
        return answer([_lagging(place, now) for place in places])

    async def show(self, call: Call) -> Answer:
        now = self._broker.now()
        places: list[q.Place] = await self._broker.ask(q.ListPlaces(group=call.params[0], last_done=True))
        queues: dict[str, dict[str, list[Fields]]] = {}
        for place in places:
            queues.setdefault(place.queue, {"partitions": []})["partitions"].append(_place(place, now, self._words))
        return answer(queues)

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


def _over_queues(name: str, found: list[tuple[Fields, set[str]]]) -> Fields:
    """One entry per group: sums and worst cases, each queue's own numbers, and of what has no sum the first queue's.

    A consumer that polls several queues is one member.
    """
    queues = [fields for fields, _ in found]
    behind = max(one["maxTimeLag"] for one in queues)
    return {
        "name": name,
        "topics": [one["queueName"] for one in queues],
        "members": len(set().union(*(members for _, members in found))),
        "totalLag": sum(one["totalLag"] for one in queues),
        "maxTimeLag": behind,
        "state": _state(behind, alive=any(one["state"] != "Dead" for one in queues)),
        "queueName": queues[0]["queueName"],
        "partitionsWithLag": sum(one["partitionsWithLag"] for one in queues),
        "subscriptionMode": queues[0]["subscriptionMode"],
        "subscriptionTimestamp": queues[0]["subscriptionTimestamp"],
        "subscriptionCreatedAt": queues[0]["subscriptionCreatedAt"],
        "queues": queues,
    }


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

    The seed moves the cursor with every ack and nack; upstream keeps it before the first unfinished message.
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
