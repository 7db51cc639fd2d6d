"""`/messages`: lists messages and shows one, with their states in each consumer group. Deletes dead letters."""

from __future__ import annotations

from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core import validation
from ackwise.core.commands import PurgeDead
from ackwise.core.errors import BadInput, MessageNotFound
from ackwise.core.message_status import PASSED, STATUSES, deadline_of, group_status, message_status
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.queen_queries import MOST_NEWEST, ListNewest
from ackwise.core.queries import FindMessage
from ackwise.core.rows import FoundMessage, GroupView, NewestMessages
from ackwise.core.validation import MICROS
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer, encode
from ackwise.protocols.queen.configure import tag_or_none
from ackwise.protocols.queen.dead_letters import error_of
from ackwise.protocols.queen.vocabulary import (
    TRACE,
    QueenContext,
    number_in,
    parse_time,
    payload_field,
    show_time,
    uuid_in,
)
from ackwise.wire.queen_options import options_of

DEFAULT_LIMIT = 200
MOST = 1000
_MINUTE = 60 * MICROS


def routes(broker: AsyncBroker, context: QueenContext) -> list[Route]:
    messages = MessageRoutes(broker, context)
    single = "/api/v1/messages/{partitionId}/{transactionId}"
    return [
        Route("GET", "/api/v1/messages", messages.newest),
        Route("GET", single, messages.show),
        Route("DELETE", single, messages.delete),
        Route("GET", "/api/v1/status/queues/{queue}/messages", messages.of_queue),
    ]


class MessageRoutes:
    """Handlers of the message routes."""

    def __init__(self, broker: AsyncBroker, context: QueenContext) -> None:
        self._broker, self._upstream = broker, context.upstream

    async def newest(self, call: Call) -> Answer:
        """Lists stored messages of all queues or of some, newest first. The store bounds the answer in bytes."""
        query = call.query
        status = query.get("status") or None
        if status is not None and status not in STATUSES:
            raise BadInput(f"status must be one of {', '.join(STATUSES)}, not {status!r:.40}")
        listing = ListNewest(
            queue=query.get("queue") or None,
            partition=query.get("partition") or None,
            namespace=query.get("namespace") or query.get("ns") or None,
            task=query.get("task") or None,
            status=status,
            after_at=parse_time(query["from"], "from") if query.get("from") else None,
            before_at=_end_of_minute(query["to"]) if query.get("to") else None,
            limit=number_in(query, "limit", DEFAULT_LIMIT, MOST, least=1, lenient=self._upstream),
            offset=number_in(query, "offset", 0, MOST_NEWEST, lenient=self._upstream),
        )
        if listing.after_at is not None and listing.before_at is not None and listing.after_at >= listing.before_at:
            raise BadInput("from must not be after to")
        await call.reserve(validation.ANSWER_BYTES)
        listed = await self._broker.ask(listing)
        return Answer(await self._broker.in_thread(_write_list, listed, self._broker.wall()))

    async def of_queue(self, call: Call) -> Answer:
        """Lists messages of one queue without payloads, newest first."""
        limit = number_in(call.query, "limit", 50, MOST, least=1, lenient=self._upstream)
        offset = number_in(call.query, "offset", 0, MOST_NEWEST, lenient=self._upstream)
        await call.reserve(validation.ANSWER_BYTES)
        listed = await self._broker.ask(ListNewest(queue=call.params[0], limit=limit, offset=offset))
        return Answer(await self._broker.in_thread(_write_short_list, listed, self._broker.wall()))

    async def show(self, call: Call) -> Answer:
        return answer(_message_fields(await self._find(call), self._broker.wall()))

    async def _find(self, call: Call) -> FoundMessage:
        partition_id = uuid_in(call.params[0], "partitionId")
        try:
            return await self._broker.ask(FindMessage(partition_id=partition_id, transaction_id=call.params[1]))
        except MessageNotFound:
            raise MessageNotFound("Message not found") from None

    async def delete(self, call: Call) -> Answer:
        """Deletes the dead letters of a message, of all groups. A live message stays."""
        names = {"partitionId": uuid_in(call.params[0], "partitionId"), "transactionId": call.params[1]}
        try:
            letters = (await self._find(call)).dead
            reason = "the message is not a dead letter; only dead letters can be deleted"
        except MessageNotFound:
            letters, reason = [], "there is no such message"
        deleted = 0
        if letters:
            deleted = (await self._broker.send(PurgeDead(ids=[letter.id for letter in letters]))).count
        if deleted:
            return answer({"success": True, **names, "message": f"{deleted} dead letters deleted"})
        refused = {"success": False, **names, "error": "Message not found", "message": reason}
        refused["code"] = MessageNotFound.code
        return answer(refused, 404 if self._upstream else 200)


def _end_of_minute(text: str) -> int:
    """The end of the minute that contains `to`."""
    return (parse_time(text, "to", end_of_day=True) // _MINUTE + 1) * _MINUTE


def _write_list(listed: NewestMessages, now: int) -> bytes:
    messages = [_listed_fields(message, now) for message in listed.messages]
    queue_mode = any(view.group == QUEUE_MODE for message in listed.messages for view in message.groups)
    named = max((len(_named(message)) for message in listed.messages), default=0)
    mode = {"hasQueueMode": queue_mode, "busGroupsCount": named, "type": _mode(queue_mode, bool(named))}
    return encode({"messages": messages, "mode": mode, "total": len(messages), "truncated": listed.cut})


def _write_short_list(listed: NewestMessages, now: int) -> bytes:
    names = ("id", "transactionId", "partitionId", "queuePath", "queue", "partition", "status", "createdAt")
    return encode([{name: fields[name] for name in names} for fields in (_common(m, now) for m in listed.messages)])


def _named(result: FoundMessage) -> list[GroupView]:
    return [view for view in result.groups if view.group != QUEUE_MODE]


def _is_dead(result: FoundMessage) -> bool:
    return bool(result.dead) or any(view.state == "dead" for view in result.groups)


def _common(result: FoundMessage, now: int) -> dict[str, Any]:
    """Fields that a list and a single message share, without the payload."""
    message, named_groups = result.message, _named(result)
    queue_mode = next((view for view in result.groups if view.group == QUEUE_MODE), None)
    deadlines = [at for at in (deadline_of(view, now) for view in result.groups) if at is not None]
    return {
        "id": message.id,
        "transactionId": message.transaction_id,
        "partitionId": result.partition_id,
        "queuePath": f"{result.queue.name}/{result.partition}",
        "queue": result.queue.name,
        "partition": result.partition,
        "namespace": tag_or_none(result.queue.namespace),
        "task": tag_or_none(result.queue.task),
        "status": message_status(result.groups, now, dead=bool(result.dead)),
        "queueStatus": group_status(queue_mode, now) if queue_mode is not None else None,
        "busStatus": {
            "consumedBy": sum(view.state in PASSED for view in named_groups),
            "totalGroups": len(named_groups),
        },
        "traceId": message.headers.get(TRACE),
        "producerSub": None,
        "queuePriority": options_of(result.queue.policy)["priority"],
        "createdAt": show_time(message.created_at),
        "leaseExpiresAt": show_time(max(deadlines, default=None)),
        "isEncrypted": False,
    }


def _listed_fields(result: FoundMessage, now: int) -> dict[str, Any]:
    payload = payload_field(result.message.payload, result.message.content_type)
    fields = _common(result, now)
    if _is_dead(result):
        fields["status"] = "dead_letter"
    return {**fields, "payloadAvailable": True, "data": payload, "payload": payload}


def _message_fields(result: FoundMessage, now: int) -> dict[str, Any]:
    message, options, named_groups = result.message, options_of(result.queue.policy), _named(result)
    has_queue_mode = len(named_groups) < len(result.groups)
    payload = payload_field(message.payload, message.content_type)
    return {
        **_common(result, now),
        "messageId": message.id,
        "deliverAt": show_time(result.due_at),
        "payload": payload,
        "data": payload,
        "errorMessage": _error(result),
        "retryCount": max((view.failures for view in result.groups), default=0),
        "queueConfig": {name: options[name] for name in ("leaseTime", "retryLimit", "retryDelay", "ttl", "priority")},
        "consumerGroups": [_group(view, now) for view in result.groups],
        "consumedByGroups": [view.group for view in result.groups if view.state in PASSED],
        "mode": {
            "hasQueueMode": has_queue_mode,
            "busGroupsCount": len(named_groups),
            "type": _mode(has_queue_mode, bool(named_groups)),
        },
    }


def _error(result: FoundMessage) -> str | None:
    """Error text of the newest dead letter. Without a dead letter: of the group with the most failures."""
    if result.dead:
        return error_of(result.dead[0])
    failed = [view for view in result.groups if view.error is not None]
    return max(failed, key=lambda view: view.failures).error if failed else None


def _group(view: GroupView, now: int) -> dict[str, Any]:
    return {
        "name": view.group,
        "consumed": view.state in PASSED,
        "state": view.state,
        "leaseExpiresAt": show_time(deadline_of(view, now)),
        "retryCount": view.failures,
        "deliveryCount": view.deliveries,
        "errorMessage": view.error,
    }


def _mode(queue: bool, bus: bool) -> str:
    if queue and bus:
        return "hybrid"
    return "queue" if queue else "bus" if bus else "none"
