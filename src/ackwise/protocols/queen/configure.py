"""`POST /api/v1/configure`: creates a queue or changes its options."""

from __future__ import annotations

from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core.answers import QueueInfo
from ackwise.core.commands import ConfigureQueue
from ackwise.core.errors import BadInput, Conflict, UnknownQueue
from ackwise.core.ids import uuid7, uuid_text
from ackwise.core.messages import DEFAULT_PARTITION
from ackwise.core.queries import GetQueue
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.queen.vocabulary import QueenContext, read_object
from ackwise.wire.queen_options import DEFAULT_OPTIONS, options_of, policy_changes


class EncryptionNotConfigured(Conflict):
    """This server cannot encrypt; leave encryptionEnabled out or set it to false."""

    code = "encryption_not_configured"


def queue_id(info: QueueInfo) -> str:
    """UUID of a queue for Queen clients, made from its creation time and its number, which never change."""
    return uuid_text(uuid7(info.created_at // 1000, info.id))


def tag_or_none(text: str) -> str | None:
    """A namespace or task, None if empty."""
    return text or None


def routes(broker: AsyncBroker, context: QueenContext) -> list[Route]:
    async def stored(queue: str) -> dict[str, Any]:
        """The stored options of a queue, or the defaults if the queue does not exist."""
        try:
            return options_of((await broker.ask(GetQueue(queue=queue))).policy)
        except UnknownQueue:
            return DEFAULT_OPTIONS

    async def configure(call: Call) -> Answer:
        body = await read_object(call)
        queue = body.get("queue")
        if not isinstance(queue, str) or not queue:
            raise BadInput("queue is required")
        call.queue = queue
        options, replace = _options(body, context), _replaces(body)
        if any(given.get("encryptionEnabled") is True for given in (body, options)):
            raise EncryptionNotConfigured
        before = DEFAULT_OPTIONS if replace else await stored(queue)
        info = await broker.send(
            ConfigureQueue(
                queue=queue,
                policy=policy_changes(options, before, upstream=context.upstream),
                create=context.policy,
                partition=DEFAULT_PARTITION,
                namespace=_tag(body, options, "namespace", context),
                task=_tag(body, options, "task", context),
                replace=replace,
            )
        )
        return answer(
            {
                "configured": True,
                "queueId": queue_id(info),
                "partitionId": info.partition_id,
                "queue": info.name,
                "namespace": tag_or_none(info.namespace),
                "task": tag_or_none(info.task),
                "options": options_of(info.policy),
            }
        )

    return [Route("POST", "/api/v1/configure", configure)]


def _options(body: dict[str, Any], context: QueenContext) -> dict[str, Any]:
    """The options of a request. Without `options`, upstream mode reads them from the top level of the body."""
    options = body.get("options")
    if options is None and context.upstream:
        return {name: value for name, value in body.items() if name in DEFAULT_OPTIONS}
    if options is not None and not isinstance(options, dict):
        raise BadInput("options must be an object")
    return options or {}


def _replaces(body: dict[str, Any]) -> bool:
    """Whether `mode` is `replace`: then missing options return to their defaults."""
    mode = body.get("mode")
    if mode not in (None, "merge", "replace"):
        raise BadInput(f"mode must be merge or replace, not {mode!r:.40}")
    return mode == "replace"


def _tag(body: dict[str, Any], options: dict[str, Any], name: str, context: QueenContext) -> str | None:
    """Namespace or task of a request. Ignores values that are not text. Upstream mode also reads the options."""
    value = body.get(name)
    if value is None and context.upstream:
        value = options.get(name)
    return value if isinstance(value, str) else None
