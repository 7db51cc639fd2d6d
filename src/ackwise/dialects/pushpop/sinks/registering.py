"""`/sink/http/register` and `/unregister`."""

from __future__ import annotations

from ackwise.dialects.http import Answer, Call, Route, answer
from ackwise.dialects.pushpop import words
from ackwise.dialects.pushpop.asking import read_object
from ackwise.dialects.pushpop.sinks import targets
from ackwise.dialects.pushpop.sinks.posting import sink_id
from ackwise.dialects.pushpop.sinks.running import Sinks


def routes(sinks: Sinks) -> list[Route]:
    async def register(call: Call) -> Answer:
        """One sink for each queue; another one takes its place."""
        queue = words.queue_id(call)
        target = targets.read(await read_object(call), sinks.allowed)
        await sinks.register(queue, target)
        told = f"Items of queue {queue} are posted to {target.url}"
        return answer({"success": True, "message": told, "sink_id": sink_id(queue)})

    async def unregister(call: Call) -> Answer:
        queue = words.queue_id(call)
        was = await sinks.unregister(queue)
        told = f"The sink of queue {queue} is removed" if was else f"Queue {queue} has no sink"
        return answer({"success": True, "message": told, "sink_id": sink_id(queue)})

    return [
        Route("POST", "/queue/{queue}/sink/http/register", register),
        Route("POST", "/queue/{queue}/sink/http/unregister", unregister),
    ]
