"""`POST /queue/{id}/push`: one item, or up to a thousand in one commit."""

from __future__ import annotations

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import limits
from ackwise.core.commands import Push
from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION, NewMessage, PlainBatch
from ackwise.dialects.http import Answer, Call, Route, answer, parse
from ackwise.dialects.pushpop import words
from ackwise.dialects.pushpop.readable import check_readable

_NONE = msgspec.Raw()


class _Item(msgspec.Struct):
    """As it was sent: what an item holds is passed on untouched, and checked to be an object."""

    item: msgspec.Raw = _NONE
    priority: msgspec.Raw = _NONE


class _Body(msgspec.Struct):
    item: msgspec.Raw = _NONE
    priority: msgspec.Raw = _NONE
    items: list[_Item] | None = None


_decoder = msgspec.json.Decoder(_Body)


def _payload(raw: msgspec.Raw, what: str) -> bytes:
    text = bytes(raw)
    if not text:
        raise BadInput(f"{what} is required")
    if not text.startswith(b"{"):
        raise BadInput(f"{what} must be a JSON object")
    check_readable(text, what)
    return text


def _priority(raw: msgspec.Raw, default: int, what: str) -> int:
    text = bytes(raw)
    if not text:
        return default
    # Only digits: as a number 1.0 and 1e3 are whole as well.
    if not text.isdigit() or len(text) > 10 or int(text) > limits.MAX_PRIORITY:
        raise BadInput(f"{what} must be a whole number from 0 to {limits.MAX_PRIORITY}")
    return int(text)


def read(body: bytes, default_priority: int) -> tuple[list[tuple[bytes, int]], bool]:
    """(payload, priority) of each item, and whether they came as a list; all of it is checked."""
    asked = parse(_decoder, body)
    if asked.items is None:
        payload = _payload(asked.item, "item")
        return [(payload, _priority(asked.priority, default_priority, "priority"))], False
    if bytes(asked.item) or bytes(asked.priority):
        raise BadInput("a push has either item, with or without priority, or items")
    if not 1 <= len(asked.items) <= words.MOST_PUSHED:
        raise BadInput(f"items must have 1 to {words.MOST_PUSHED} entries, not {len(asked.items)}")
    return [
        (_payload(one.item, f"items[{n}].item"), _priority(one.priority, default_priority, f"items[{n}].priority"))
        for n, one in enumerate(asked.items)
    ], True


def push_of(queue: str, items: list[tuple[bytes, int]]) -> Push:
    """One command, which is one commit; items of one priority go as columns."""
    priorities = {priority for _, priority in items}
    if len(priorities) == 1:
        batch = PlainBatch([payload for payload, _ in items], priority=priorities.pop())
        return Push(queue=queue, messages=batch, create=words.POLICY)
    messages = [NewMessage(payload, DEFAULT_PARTITION, priority) for payload, priority in items]
    return Push(queue=queue, messages=messages, create=words.POLICY)


def routes(broker: AsyncBroker, default_priority: int) -> list[Route]:
    async def push(call: Call) -> Answer:
        queue = words.queue_id(call)
        items, listed = read(await call.body(), default_priority)
        await broker.send(push_of(queue, items))
        if listed:
            told = f"{len(items)} items pushed to queue {queue}"
            return answer({"success": True, "message": told, "items_pushed": len(items)})
        return answer({"success": True, "message": f"Item pushed to queue {queue} with priority {items[0][1]}"})

    return [Route("POST", "/queue/{queue}/push", push)]
