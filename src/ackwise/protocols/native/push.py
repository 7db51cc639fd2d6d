"""`POST /v1/push`, as JSON or as an Arrow stream."""

from __future__ import annotations

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.native import arrow
from ackwise.protocols.native.request_arguments import Arguments, sends_arrow
from ackwise.protocols.trace_headers import has_trace, traced
from ackwise.wire import push as wire_push

_BODY = msgspec.json.Decoder(wire_push.PushBody)


def routes(broker: AsyncBroker) -> list[Route]:
    async def push(call: Call) -> Answer:
        if sends_arrow(call):
            return await push_arrow(call)
        body = await call.read(_BODY)
        command = wire_push.command(body)
        call.queue, call.messages = command.queue, len(command.messages)
        if has_trace(call):
            (command,) = traced([command], call)
        receipts = await broker.send(command)
        return answer(wire_push.answer(receipts, columns=body.payloads is not None))

    async def push_arrow(call: Call) -> Answer:
        arrow.needed_to_read()
        arguments = Arguments(call.query)
        queue = arguments.needed("queue")
        arguments.done()
        command = await broker.in_thread(arrow.read_push, queue, await call.body())
        call.queue, call.messages = queue, len(command.messages)
        if has_trace(call):
            (command,) = traced([command], call)
        receipts = await broker.send(command)
        return answer(wire_push.answer(receipts, columns=False))

    return [Route("POST", "/v1/push", push)]
