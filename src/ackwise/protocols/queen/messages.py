"""`GET /messages/…`: one message with its state in each consumer group."""

from __future__ import annotations

from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core.errors import MessageNotFound
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.queries import FindMessage
from ackwise.core.rows import FoundMessage, GroupView
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.queen.configure import tag_or_none
from ackwise.protocols.queen.dead_letters import error_of
from ackwise.protocols.queen.vocabulary import TRACE, QueenContext, payload_field, show_time, uuid_in
from ackwise.wire.queen_options import options_of

_PASSED = ("acked", "dead", "dropped", "skipped")


def routes(broker: AsyncBroker, _: QueenContext) -> list[Route]:
    async def show(call: Call) -> Answer:
        partition_id = uuid_in(call.params[0], "partitionId")
        try:
            result = await broker.ask(FindMessage(partition_id=partition_id, transaction_id=call.params[1]))
        except MessageNotFound:
            raise MessageNotFound("Message not found") from None
        return answer(_message_fields(result, broker.wall()))

    return [Route("GET", "/api/v1/messages/{partitionId}/{transactionId}", show)]


def _message_fields(result: FoundMessage, now: int) -> dict[str, Any]:
    message, options = result.message, options_of(result.queue.policy)
    named_groups = [view for view in result.groups if view.group != QUEUE_MODE]
    queue_mode = next((view for view in result.groups if view.group == QUEUE_MODE), None)
    consumed = [view.group for view in result.groups if view.state in _PASSED]
    deadlines = [at for at in (_deadline(view, now) for view in result.groups) if at is not None]
    payload = payload_field(message.payload, message.content_type)
    return {
        "id": message.id,
        "messageId": message.id,
        "transactionId": message.transaction_id,
        "partitionId": result.partition_id,
        "queuePath": f"{result.queue.name}/{result.partition}",
        "queue": result.queue.name,
        "partition": result.partition,
        "namespace": tag_or_none(result.queue.namespace),
        "task": tag_or_none(result.queue.task),
        "status": _status(result, queue_mode, named_groups, now),
        "queueStatus": _group_status(queue_mode, now) if queue_mode is not None else None,
        "busStatus": {
            "consumedBy": sum(view.state in _PASSED for view in named_groups),
            "totalGroups": len(named_groups),
        },
        "traceId": message.headers.get(TRACE),
        "producerSub": None,
        "queuePriority": options["priority"],
        "createdAt": show_time(message.created_at),
        "deliverAt": show_time(result.due_at),
        "leaseExpiresAt": show_time(max(deadlines, default=None)),
        "payload": payload,
        "data": payload,
        "isEncrypted": False,
        "errorMessage": _error(result),
        "retryCount": max((view.failures for view in result.groups), default=0),
        "queueConfig": {name: options[name] for name in ("leaseTime", "retryLimit", "retryDelay", "ttl", "priority")},
        "consumerGroups": [_group(view, now) for view in result.groups],
        "consumedByGroups": consumed,
        "mode": {
            "hasQueueMode": queue_mode is not None,
            "busGroupsCount": len(named_groups),
            "type": _mode(queue_mode is not None, bool(named_groups)),
        },
    }


def _error(result: FoundMessage) -> str | None:
    """Error text of the newest dead letter, else of the group with the most failures."""
    if result.dead:
        return error_of(result.dead[0])
    failed = [view for view in result.groups if view.error is not None]
    return max(failed, key=lambda view: view.failures).error if failed else None


def _deadline(view: GroupView, now: int) -> int | None:
    """Deadline of the lease that holds the message. None if no lease holds it or the lease has expired."""
    return view.deadline if view.deadline is not None and view.deadline > now else None


def _group(view: GroupView, now: int) -> dict[str, Any]:
    return {
        "name": view.group,
        "consumed": view.state in _PASSED,
        "state": view.state,
        "leaseExpiresAt": show_time(_deadline(view, now)),
        "retryCount": view.failures,
        "deliveryCount": view.deliveries,
        "errorMessage": view.error,
    }


def _status(result: FoundMessage, queue_mode: GroupView | None, named_groups: list[GroupView], now: int) -> str:
    """Status by upstream's rule: dead letter first, then queue mode, then all named groups together.

    A message that a group dropped is `dropped`. Upstream shows such a message as `completed`.
    """
    if result.dead:
        return "dead_letter"
    if queue_mode is not None:
        return _group_status(queue_mode, now)
    if not named_groups or any(view.state not in _PASSED for view in named_groups):
        return "pending"
    return "dropped" if any(view.state == "dropped" for view in named_groups) else "completed"


def _group_status(view: GroupView, now: int) -> str:
    """Status of the message in one group."""
    if view.state == "dropped":
        return "dropped"
    if view.state in _PASSED:
        return "completed"
    return "processing" if _deadline(view, now) is not None else "pending"


def _mode(queue: bool, bus: bool) -> str:
    if queue and bus:
        return "hybrid"
    return "queue" if queue else "bus" if bus else "none"
