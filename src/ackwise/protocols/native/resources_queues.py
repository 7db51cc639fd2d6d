"""`/v1/queues/{queue}`: create, show, change, pause, resume, purge and delete a queue."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core import validation
from ackwise.core.answers import QueueInfo
from ackwise.core.commands import ConfigureQueue, DeleteQueue, PauseQueue, PurgeQueue
from ackwise.core.policy import NEW_QUEUE_POLICY
from ackwise.core.rows import Stats
from ackwise.core.versions import queue_version
from ackwise.protocols.http_request import Call, parse
from ackwise.protocols.http_response import Answer, Route
from ackwise.protocols.native.resource_answers import if_match, path, removed, resource, resource_doc
from ackwise.wire import timestamps

TAG = "queues"
PolicyFields = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/QueuePolicy"})]
"""Some fields of a `QueuePolicy`."""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=validation.MAX_NAME)]
Tag = Annotated[str, msgspec.Meta(max_length=validation.MAX_NAME)]


class NewQueue(msgspec.Struct, forbid_unknown_fields=True):
    """A queue to create. `policy` has the fields that differ from the policy of a new queue."""

    queue: Name
    policy: PolicyFields = {}
    namespace: Tag = ""
    task: Tag = ""


class QueueChange(msgspec.Struct, forbid_unknown_fields=True):
    """Fields to change. Absent fields of the policy keep their values."""

    policy: PolicyFields = {}
    namespace: Tag | None = None
    task: Tag | None = None


class QueueBody(msgspec.Struct):
    """A queue."""

    queue: str
    namespace: str
    task: str
    paused: bool
    policy: PolicyFields
    created_at: str


class QueueCounts(msgspec.Struct):
    """Counts of a queue. The group with the largest lag has the counts `pending`, `processing` and `completed`."""

    queue: str
    partitions: int
    messages: int
    scheduled: int
    pending: int
    processing: int
    completed: int
    dead: int
    groups: int


class PurgeBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of a purge. With `dry_run` the server only counts the messages."""

    dry_run: bool = False


class PurgeResult(msgspec.Struct):
    """Messages that a purge removes. `messages` counts those that groups skip, without a group those removed."""

    queue: str
    groups: int
    messages: int
    dry_run: bool
    removed: int
    scheduled: int


_NEW = msgspec.json.Decoder(NewQueue)
_CHANGE = msgspec.json.Decoder(QueueChange)
_PURGE = msgspec.json.Decoder(PurgeBody)


def queue_body(info: QueueInfo) -> QueueBody:
    return QueueBody(info.name, info.namespace, info.task, info.paused, info.policy, timestamps.text(info.created_at))


def _shown(info: QueueInfo, location: str | None = None) -> Answer:
    return resource(queue_body(info), version=queue_version(info), location=location)


def routes(broker: AsyncBroker) -> list[Route]:
    async def create(call: Call) -> Answer:
        body = await call.read(_NEW)
        call.queue = body.queue
        info = await broker.send(
            ConfigureQueue(
                queue=body.queue,
                policy=body.policy,
                create=NEW_QUEUE_POLICY,
                namespace=body.namespace,
                task=body.task,
                must_be_new=True,
            )
        )
        return _shown(info, path("queues", info.name))

    async def show(call: Call) -> Answer:
        return _shown(await broker.ask(q.GetQueue(queue=call.params[0])))

    async def change(call: Call) -> Answer:
        version, body = if_match(call), await call.read(_CHANGE)
        command = ConfigureQueue(
            queue=call.params[0], policy=body.policy, namespace=body.namespace, task=body.task, version=version
        )
        return _shown(await broker.send(command))

    async def delete(call: Call) -> Answer:
        await broker.send(DeleteQueue(queue=call.params[0], version=if_match(call)))
        return removed()

    async def pause(call: Call) -> Answer:
        return _shown(await broker.send(PauseQueue(queue=call.params[0], paused=True, version=if_match(call))))

    async def resume(call: Call) -> Answer:
        return _shown(await broker.send(PauseQueue(queue=call.params[0], paused=False, version=if_match(call))))

    async def stats(call: Call) -> Answer:
        return resource(_counts(await broker.ask(q.QueueStats(queue=call.params[0]))))

    async def purge(call: Call) -> Answer:
        raw = await call.body()
        body = parse(_PURGE, raw) if raw.strip() else PurgeBody()
        purged = await _purge(broker, call.params[0], dry_run=body.dry_run)
        call.messages = 0 if body.dry_run else purged.messages
        return resource(purged)

    shown, change_errors = {200: QueueBody}, (404,)
    return [
        Route("POST", "/v1/queues", create, doc=resource_doc(
            TAG, "Create a queue", body=NewQueue, answers={201: QueueBody}, errors=(409,))),
        Route("GET", "/v1/queues/{queue}", show, doc=resource_doc(TAG, "Show a queue", answers=shown, errors=(404,))),
        Route("PATCH", "/v1/queues/{queue}", change, doc=resource_doc(
            TAG, "Change a queue", body=QueueChange, answers=shown, errors=change_errors, versioned=True)),
        Route("DELETE", "/v1/queues/{queue}", delete, doc=resource_doc(
            TAG, "Delete a queue with its messages", answers={204: None}, errors=change_errors, versioned=True)),
        Route("POST", "/v1/queues/{queue}/pause", pause, doc=resource_doc(
            TAG, "Stop deliveries of a queue. Pushes continue", answers=shown, errors=change_errors, versioned=True)),
        Route("POST", "/v1/queues/{queue}/resume", resume, doc=resource_doc(
            TAG, "Resume deliveries of a queue", answers=shown, errors=change_errors, versioned=True)),
        Route("GET", "/v1/queues/{queue}/stats", stats, doc=resource_doc(
            TAG, "Counts of a queue", answers={200: QueueCounts}, errors=(404,))),
        Route("POST", "/v1/queues/{queue}/purge", purge, doc=resource_doc(
            TAG, "Remove all messages of a queue. Its groups skip them, dead letters stay",
            body=PurgeBody, body_required=False, answers={200: PurgeResult}, errors=(404,))),
    ]  # fmt: skip


def _counts(stats: Stats) -> QueueCounts:
    return QueueCounts(
        stats.queue,
        stats.partitions,
        stats.messages,
        stats.scheduled,
        stats.pending,
        stats.processing,
        stats.completed,
        stats.dead,
        len(stats.groups),
    )


async def _purge(broker: AsyncBroker, queue: str, *, dry_run: bool) -> PurgeResult:
    """Removes all messages that are stored now. Groups skip those that they have not finished."""
    preview = await broker.ask(q.PreviewPurge(queue=queue))
    groups = len(preview.groups)
    if dry_run:
        messages = preview.skipped if groups else preview.messages
        return PurgeResult(queue, groups, messages, True, preview.messages, preview.scheduled)
    purged = await broker.send(PurgeQueue(queue=queue, until=preview.until))
    messages = purged.skipped if groups else purged.messages
    return PurgeResult(queue, groups, messages, False, purged.messages, purged.scheduled)
