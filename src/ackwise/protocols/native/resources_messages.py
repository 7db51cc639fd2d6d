"""`/v1/messages`: push messages, and show one message with its state in each group."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core.rows import FoundMessage, GroupView
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, encode
from ackwise.protocols.native.resource_answers import path, resource, resource_doc
from ackwise.protocols.trace_headers import has_trace, traced
from ackwise.wire import payloads, push, timestamps

TAG = "messages"


class GroupState(msgspec.Struct):
    """State of a message in one group."""

    group: str
    state: str
    deadline: str | None
    failures: int
    deliveries: int
    error: str | None


class ShownMessage(msgspec.Struct):
    """A message. `seq` is null and `due_at` is set while the message is scheduled."""

    message_id: str
    transaction_id: str
    queue: str
    partition: str
    partition_id: str
    priority: int
    seq: int | None
    payload: msgspec.Raw
    headers: dict[str, str]
    content_type: str
    created_at: str
    due_at: str | None
    groups: list[GroupState]
    dead_letters: list[str]


_PUSH = msgspec.json.Decoder(push.PushBody)


def routes(broker: AsyncBroker) -> list[Route]:
    async def create(call: Call) -> Answer:
        body = await call.read(_PUSH)
        command = push.command(body)
        call.queue, call.messages = command.queue, len(command.messages)
        if has_trace(call):
            (command,) = traced([command], call)
        receipts = await broker.send(command)
        reply = Answer(encode(push.answer(receipts, columns=body.payloads is not None)), 201)
        if len(receipts) == 1:
            location = path("messages", receipts[0].partition_id, receipts[0].transaction_id)
            reply.headers = ((b"location", location.encode()),)
        return reply

    async def show(call: Call) -> Answer:
        await call.reserve(len(call.params[1]))
        message: FoundMessage = await broker.ask(
            q.FindMessage(partition_id=call.params[0], transaction_id=call.params[1])
        )
        reply = resource(_body(message))
        call.hold(len(reply.body))
        return reply

    answers: dict[int, Any] = {201: push.PushAnswer}
    return [
        Route("POST", "/v1/messages", create, doc=resource_doc(
            TAG, "Push messages", body=push.PushBody, answers=answers, errors=(404, 409))),
        Route("GET", "/v1/messages/{partition_id}/{transaction_id}", show, doc=resource_doc(
            TAG, "Show a message and its state in each group", answers={200: ShownMessage}, errors=(404,))),
    ]  # fmt: skip


def _body(result: FoundMessage) -> ShownMessage:
    message = result.message
    payload, content_type = payloads.for_answer(message.payload, message.content_type)
    return ShownMessage(
        message_id=message.id,
        transaction_id=message.transaction_id,
        queue=result.queue.name,
        partition=result.partition,
        partition_id=result.partition_id,
        priority=result.priority,
        seq=message.seq if result.due_at is None else None,
        payload=msgspec.Raw(payload),
        headers=message.headers,
        content_type=content_type,
        created_at=timestamps.text(message.created_at),
        due_at=timestamps.text_or_none(result.due_at),
        groups=list(map(_state, result.groups)),
        dead_letters=[letter.id for letter in result.dead],
    )


def _state(view: GroupView) -> GroupState:
    deadline = timestamps.text_or_none(view.deadline)
    return GroupState(view.group, view.state, deadline, view.failures, view.deliveries, view.error)
