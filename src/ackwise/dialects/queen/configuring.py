"""`POST /api/v1/configure`: a queue and its options."""

from __future__ import annotations

from typing import Any

from ackwise.broker import AsyncBroker
from ackwise.core.answers import QueueInfo
from ackwise.core.commands import ConfigureQueue
from ackwise.core.errors import BadInput, Conflict, UnknownQueue
from ackwise.core.ids import uuid7, uuid_text
from ackwise.core.messages import DEFAULT_PARTITION
from ackwise.core.queen_options import DEFAULT_OPTIONS, options_of, policy_changes
from ackwise.core.queries import GetQueue
from ackwise.dialects.http import Answer, Call, Route, answer
from ackwise.dialects.queen.asking import read_object
from ackwise.dialects.queen.words import Words


class EncryptionNotConfigured(Conflict):
    """This server cannot encrypt; leave encryptionEnabled out or set it to false."""

    code = "encryption_not_configured"


def queue_id(info: QueueInfo) -> str:
    """Queen's queues have UUIDs; ours is made of what never changes."""
    return uuid_text(uuid7(info.created_at // 1000, info.id))


def tag(text: str) -> str | None:
    """A namespace or task; none is null."""
    return text or None


def routes(broker: AsyncBroker, words: Words) -> list[Route]:
    async def stored(queue: str) -> dict[str, Any]:
        """The options of a queue as they are; those of a new one when there is none."""
        try:
            return options_of((await broker.ask(GetQueue(queue=queue))).policy)
        except UnknownQueue:
            return DEFAULT_OPTIONS

    async def configure(call: Call) -> Answer:
        body = await read_object(call)
        queue = body.get("queue")
        if not isinstance(queue, str) or not queue:
            raise BadInput("queue is required")
        options, replace = _options(body, words), _replaces(body)
        if options.get("encryptionEnabled") is True:
            raise EncryptionNotConfigured
        before = DEFAULT_OPTIONS if replace else await stored(queue)
        info: QueueInfo = await broker.send(
            ConfigureQueue(
                queue=queue,
                policy=policy_changes(options, before, upstream=words.upstream),
                create=words.policy(),
                partition=DEFAULT_PARTITION,
                namespace=_tag(body, options, "namespace", words),
                task=_tag(body, options, "task", words),
                replace=replace,
            )
        )
        return answer(
            {
                "configured": True,
                "queueId": queue_id(info),
                "partitionId": info.partition_id,
                "queue": info.name,
                "namespace": tag(info.namespace),
                "task": tag(info.task),
                "options": options_of(info.policy),
            }
        )

    return [Route("POST", "/api/v1/configure", configure)]


def _options(body: dict[str, Any], words: Words) -> dict[str, Any]:
    """The options of a call. Upstream also takes options beside `queue` when the call has no `options`."""
    options = body.get("options")
    if options is None and words.upstream:
        return {name: value for name, value in body.items() if name in DEFAULT_OPTIONS}
    if options is not None and not isinstance(options, dict):
        raise BadInput("options must be an object")
    return options or {}


def _replaces(body: dict[str, Any]) -> bool:
    """Options that are not given keep their values, unless the call says `replace`."""
    mode = body.get("mode")
    if mode not in (None, "merge", "replace"):
        raise BadInput(f"mode must be merge or replace, not {mode!r:.40}")
    return mode == "replace"


def _tag(body: dict[str, Any], options: dict[str, Any], name: str, words: Words) -> str | None:
    """Namespace and task count only when they are text. Upstream also takes both from the options."""
    value = body.get(name)
    if value is None and words.upstream:
        value = options.get(name)
    return value if isinstance(value, str) else None
