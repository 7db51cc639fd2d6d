"""`POST /v1/push`."""

from __future__ import annotations

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core.native import pushing
from ackwise.dialects.http import Answer, Call, Route, answer
from ackwise.server.native import arrow
from ackwise.server.native.reading import Arguments, sends_arrow

_BODY = msgspec.json.Decoder(pushing.PushBody)


def routes(broker: AsyncBroker) -> list[Route]:
    async def push(call: Call) -> Answer:
        if sends_arrow(call):
            return await push_arrow(call)
        body = await call.read(_BODY)
        receipts = await broker.send(pushing.command(body))
        return answer(pushing.answer(receipts, columns=body.payloads is not None))

    async def push_arrow(call: Call) -> Answer:
        arrow.needed_to_read()
        given = Arguments(call.query)
        queue = given.needed("queue")
        given.done()
        command = await broker.in_thread(arrow.push, queue, await call.body())
        return answer(pushing.answer(await broker.send(command), columns=False))

    return [Route("POST", "/v1/push", push)]
