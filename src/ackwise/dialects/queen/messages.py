"""`GET /api/v1/messages/:partitionId/:transactionId`: one message and how every group stands to it."""

from __future__ import annotations

from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core.errors import MessageNotFound
from ackwise.core.messages import QUEUE_MODE
from ackwise.core.queen_options import options_of
from ackwise.core.queries import FindMessage, FoundMessage, GroupView
from ackwise.dialects.http import Answer, Call, Route, answer
from ackwise.dialects.queen.asking import shown_payload, uuid_in
from ackwise.dialects.queen.configuring import tag
from ackwise.dialects.queen.dead_letters import error_of
from ackwise.dialects.queen.words import TRACE, Words, show_time

_PASSED = ("acked", "dead", "dropped", "skipped")


def routes(broker: AsyncBroker, words: Words) -> list[Route]:
    async def show(call: Call) -> Answer:
        partition_id = uuid_in(call.params[0], "partitionId")
        try:
            found = await broker.ask(FindMessage(partition_id=partition_id, transaction_id=call.params[1]))
        except MessageNotFound:
            raise MessageNotFound("Message not found") from None
        return answer(_spelled(found, broker.now(), words))

    return [Route("GET", "/api/v1/messages/{partitionId}/{transactionId}", show)]


def _spelled(found: FoundMessage, now: int, words: Words) -> dict[str, Any]:
    message, options = found.message, options_of(found.queue.policy)
    named = [view for view in found.groups if view.group != QUEUE_MODE]
    alone = next((view for view in found.groups if view.group == QUEUE_MODE), None)
    consumed = [view.group for view in found.groups if view.state in _PASSED]
    deadlines = [at for at in (_deadline(view, now) for view in found.groups) if at is not None]
    payload = shown_payload(message.payload, message.content_type)
    return {
        "id": message.id,
        "messageId": message.id,
        "transactionId": message.transaction_id,
        "partitionId": found.partition_id,
        "queuePath": f"{found.queue.name}/{found.partition}",
        "queue": found.queue.name,
        "partition": found.partition,
        "namespace": tag(found.queue.namespace),
        "task": tag(found.queue.task),
        "status": _status(found, alone, named, now, words),
        "queueStatus": _standing(alone, now, words) if alone is not None else None,
        "busStatus": {
            "consumedBy": sum(view.state in _PASSED for view in named),
            "totalGroups": len(named),
        },
        "traceId": message.headers.get(TRACE),
        "producerSub": None,
        "queuePriority": options["priority"],
        "createdAt": show_time(message.created_at),
        "deliverAt": show_time(found.due_at),
        "leaseExpiresAt": show_time(max(deadlines, default=None)),
        "payload": payload,
        "data": payload,
        "isEncrypted": False,
        "errorMessage": _error(found),
        "retryCount": max((view.failures for view in found.groups), default=0),
        "queueConfig": {name: options[name] for name in ("leaseTime", "retryLimit", "retryDelay", "ttl", "priority")},
        "consumerGroups": [_group(view, now) for view in found.groups],
        "consumedByGroups": consumed,
        "mode": {
            "hasQueueMode": alone is not None,
            "busGroupsCount": len(named),
            "type": _mode(alone is not None, bool(named)),
        },
    }


def _error(found: FoundMessage) -> str | None:
    """The text of the last failure: the newest dead letter's, else that of the group with the most failures."""
    if found.dead:
        return error_of(found.dead[0])
    failed = [view for view in found.groups if view.error is not None]
    return max(failed, key=lambda view: view.failures).error if failed else None


def _deadline(view: GroupView, now: int) -> int | None:
    """Until when the message is held; a lease that ran out holds nothing."""
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


def _status(found: FoundMessage, alone: GroupView | None, named: list[GroupView], now: int, words: Words) -> str:
    """Upstream's rule: a dead letter first, then queue mode, and without it all of the named groups."""
    if found.dead:
        return "dead_letter"
    if alone is not None:
        return _standing(alone, now, words)
    return "completed" if named and all(view.state in _PASSED for view in named) else "pending"


def _standing(view: GroupView, now: int, words: Words) -> str:
    """Upstream has no word for a message that was dropped."""
    if view.state == "dropped" and not words.upstream:
        return "dropped"
    if view.state in _PASSED:
        return "completed"
    return "processing" if _deadline(view, now) is not None else "pending"


def _mode(queue: bool, bus: bool) -> str:
    if queue and bus:
        return "hybrid"
    return "queue" if queue else "bus" if bus else "none"
