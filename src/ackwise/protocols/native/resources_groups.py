"""`/v1/queues/{queue}/groups/{group}`: create, show, change, seek and delete a consumer group."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core.commands import ConfigureGroup, DeleteGroup, SeekGroup
from ackwise.core.errors import BadInput
from ackwise.core.policy import GroupPolicy
from ackwise.core.rows import GroupDetails
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route
from ackwise.protocols.native.resource_answers import if_match, path, removed, resource, resource_doc
from ackwise.protocols.native.resources_queues import Name
from ackwise.wire import timestamps

TAG = "groups"
LONGEST_INSTANT = 64
Instant = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_INSTANT)]
GroupPolicyFields = Annotated[
    dict[str, Any], msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/GroupPolicy"})
]


class NewGroup(msgspec.Struct, forbid_unknown_fields=True):
    """A group to create. `start` is `all`, `new` or an ISO time."""

    group: Name
    start: Instant = "all"
    policy: GroupPolicy = GroupPolicy()


class GroupChange(msgspec.Struct, forbid_unknown_fields=True):
    """The group's own policy. It replaces the earlier policy of the group. An absent field has the queue's value."""

    policy: GroupPolicy


class SeekBody(msgspec.Struct, forbid_unknown_fields=True):
    """Target of a seek. `to` is `start`, `end` or an ISO time. Instead, `partition` and `seq` name one message."""

    to: Instant | None = None
    partition: Name | None = None
    seq: Annotated[int, msgspec.Meta(ge=0, le=(1 << 40) - 1)] | None = None


class GroupBody(msgspec.Struct):
    """A group. lag = unread + held."""

    queue: str
    group: str
    start: str
    policy: GroupPolicyFields
    lag: int
    unread: int
    held: int
    leased: int
    acked: int
    dead: int
    skipped: int
    expired: int
    leases: int
    members: list[str]
    partitions: int
    partitions_behind: int
    oldest_unfinished_at: str | None
    settled_at: str | None
    created_at: str


class SoughtGroup(msgspec.Struct):
    """How many lanes a seek moved."""

    queue: str
    group: str
    lanes: int


_NEW = msgspec.json.Decoder(NewGroup)
_CHANGE = msgspec.json.Decoder(GroupChange)
_SEEK = msgspec.json.Decoder(SeekBody)


def routes(broker: AsyncBroker) -> list[Route]:
    async def shown(queue: str, group: str, location: str | None = None) -> Answer:
        details = await broker.ask(q.GetGroup(queue=queue, group=group))
        return resource(_body(details), version=details.version, location=location)

    async def create(call: Call) -> Answer:
        queue, body = call.params[0], await call.read(_NEW)
        command = ConfigureGroup(
            queue=queue, group=body.group, start=_start(body.start), policy=body.policy, must_be_new=True
        )
        await broker.send(command)
        return await shown(queue, body.group, path("queues", queue, "groups", body.group))

    async def show(call: Call) -> Answer:
        return await shown(call.params[0], call.params[1])

    async def change(call: Call) -> Answer:
        version, body = if_match(call), await call.read(_CHANGE)
        queue, group = call.params
        await broker.send(ConfigureGroup(queue=queue, group=group, policy=body.policy, version=version))
        return await shown(queue, group)

    async def seek(call: Call) -> Answer:
        version, body = if_match(call), await call.read(_SEEK)
        queue, group = call.params
        command = SeekGroup(queue=queue, group=group, to="start", partition=body.partition, version=version)
        counted = await broker.send(_aimed(command, body))
        return resource(SoughtGroup(queue, group, counted.count))

    async def delete(call: Call) -> Answer:
        await broker.send(DeleteGroup(queue=call.params[0], group=call.params[1], version=if_match(call)))
        return removed()

    base = "/v1/queues/{queue}/groups"
    answers, missing = {200: GroupBody}, (404,)
    return [
        Route("POST", base, create, doc=resource_doc(
            TAG, "Create a group of a queue", body=NewGroup, answers={201: GroupBody}, errors=(404, 409))),
        Route("GET", f"{base}/{{group}}", show, doc=resource_doc(TAG, "Show a group", answers=answers, errors=missing)),
        Route("PATCH", f"{base}/{{group}}", change, doc=resource_doc(
            TAG, "Change the policy of a group", body=GroupChange, answers=answers, errors=missing, versioned=True)),
        Route("POST", f"{base}/{{group}}/seek", seek, doc=resource_doc(
            TAG, "Move a group to the start, the end, a time or a message", body=SeekBody,
            answers={200: SoughtGroup}, errors=missing, versioned=True)),
        Route("DELETE", f"{base}/{{group}}", delete, doc=resource_doc(
            TAG, "Delete a group. Its dead letters stay", answers={204: None}, errors=missing, versioned=True)),
    ]  # fmt: skip


def _start(text: str) -> Literal["all", "new"] | int:
    if text == "all" or text == "new":
        return "all" if text == "all" else "new"
    return timestamps.parse(text, "start")


def _aimed(command: SeekGroup, body: SeekBody) -> SeekGroup:
    """The seek with the target of the body."""
    if (body.to is None) == (body.seq is None):
        raise BadInput("a seek names one of to and seq")
    if body.seq is not None:
        return msgspec.structs.replace(command, to=body.seq, by="seq")
    assert body.to is not None
    to = body.to if body.to in ("start", "end") else timestamps.parse(body.to, "to")
    return msgspec.structs.replace(command, to=to)


def _body(details: GroupDetails) -> GroupBody:
    stats = details.stats
    return GroupBody(
        queue=stats.queue,
        group=stats.group,
        start=stats.mode if stats.from_at is None else timestamps.text(stats.from_at),
        policy=details.policy,
        lag=stats.lag,
        unread=stats.unread,
        held=stats.held,
        leased=stats.leased,
        acked=stats.acked,
        dead=stats.dead,
        skipped=stats.skipped,
        expired=stats.expired,
        leases=stats.leases,
        members=stats.members,
        partitions=stats.partitions,
        partitions_behind=stats.partitions_behind,
        oldest_unfinished_at=timestamps.text_or_none(stats.oldest_unfinished_at),
        settled_at=timestamps.text_or_none(stats.settled_at),
        created_at=timestamps.text(stats.created_at),
    )
