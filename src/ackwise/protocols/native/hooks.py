"""Routes of the webhook of a queue's dead letters (`/v1/queues/{queue}/on-dead`)."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import queries as q
from ackwise.core.commands import Command, RemoveHook, SetHook
from ackwise.core.errors import NotFound
from ackwise.core.hooks import WEBHOOK
from ackwise.core.rows import HookRow
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.native.resource_answers import as_resource
from ackwise.protocols.post_targets import checked_url
from ackwise.wire.timestamps import text_or_none as show_time

PATH = "/v1/queues/{queue}/on-dead"


class HookBody(msgspec.Struct, forbid_unknown_fields=True):
    """Body of PUT."""

    url: str
    include_payload: bool = False


_read_body = msgspec.json.Decoder(HookBody)


def routes(broker: AsyncBroker, allowed: Collection[str], on_hook: Callable[[], None]) -> list[Route]:
    async def put(call: Call) -> Answer:
        body = await call.read(_read_body)
        command = SetHook(queue=call.params[0], url=body.url, include_payload=body.include_payload)
        check_target(command, allowed)
        hook = await broker.send(command)
        on_hook()
        return answer(fields(hook))

    async def get(call: Call) -> Answer:
        hooks = await broker.ask(q.ListHooks(queue=call.params[0]))
        for hook in hooks:
            if hook.name == WEBHOOK:
                return answer(fields(hook))
        raise NotFound(f"queue {call.params[0]!r:.60} has no webhook; set one with PUT on this path")

    async def delete(call: Call) -> Answer:
        removed = await broker.send(RemoveHook(queue=call.params[0]))
        return answer({"removed": removed.count})

    routes = [Route("PUT", PATH, put), Route("GET", PATH, get), Route("DELETE", PATH, delete)]
    return [as_resource(route) for route in routes]


def check_target(command: Command, allowed: Collection[str]) -> None:
    """Refuse a hook with a URL that this server may not post to."""
    if isinstance(command, SetHook) and command.url is not None:
        checked_url(command.url, allowed)


def fields(hook: HookRow) -> dict[str, object]:
    return {
        "queue": hook.queue,
        "url": hook.url,
        "include_payload": hook.include_payload,
        "paused": hook.paused,
        "error": hook.error or None,
        "failures": hook.failures,
        "failing_since": show_time(hook.failing_since),
        "retry_seconds": hook.retry_in / 1_000_000,
        "pending": hook.pending,
        "created_at": show_time(hook.created_at),
    }
