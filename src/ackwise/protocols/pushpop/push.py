"""`push`: stores items, after a check that every JSON reader can read them."""

from __future__ import annotations

import json
import math

import msgspec

from ackwise.broker import AsyncBroker
from ackwise.core import validation
from ackwise.core.commands import Push
from ackwise.core.errors import BadInput
from ackwise.core.messages import DEFAULT_PARTITION, NewMessage, PlainBatch
from ackwise.protocols.http_request import Call, parse
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.pushpop import vocabulary
from ackwise.protocols.trace_headers import has_trace, traced

Raw = msgspec.Raw | msgspec.UnsetType


class _Item(msgspec.Struct):
    """One item as raw JSON. The server stores it unchanged."""

    item: Raw = msgspec.UNSET
    priority: Raw = msgspec.UNSET


class _Body(msgspec.Struct):
    item: Raw = msgspec.UNSET
    priority: Raw = msgspec.UNSET
    items: list[_Item] | None = None


_decoder = msgspec.json.Decoder(_Body)


def _payload(raw: Raw, what: str) -> bytes:
    if raw is msgspec.UNSET:
        raise BadInput(f"{what} is required")
    text = bytes(raw)
    if not text.startswith(b"{"):
        raise BadInput(f"{what} must be a JSON object")
    check_readable(text, what)
    return text


def _priority(raw: Raw, default: int, what: str) -> int:
    if raw is msgspec.UNSET:
        return default
    text = bytes(raw)
    # Only digits: as a number 1.0 and 1e3 are whole as well.
    if not text.isdigit() or len(text) > 10 or int(text) > validation.MAX_PRIORITY:
        raise BadInput(f"{what} must be a whole number from 0 to {validation.MAX_PRIORITY}")
    return int(text)


def read(body: bytes, default_priority: int) -> tuple[list[tuple[bytes, int]], bool]:
    """Checked (payload, priority) of each item, and whether the request has a list of items."""
    request = parse(_decoder, body)
    if request.items is None:
        payload = _payload(request.item, "item")
        return [(payload, _priority(request.priority, default_priority, "priority"))], False
    if request.item is not msgspec.UNSET or request.priority is not msgspec.UNSET:
        raise BadInput("a push has either item, with or without priority, or items")
    if not 1 <= len(request.items) <= vocabulary.MOST_PUSHED:
        raise BadInput(f"items must have 1 to {vocabulary.MOST_PUSHED} entries, not {len(request.items)}")
    return [
        (_payload(item.item, f"items[{n}].item"), _priority(item.priority, default_priority, f"items[{n}].priority"))
        for n, item in enumerate(request.items)
    ], True


def push_of(queue: str, items: list[tuple[bytes, int]]) -> Push:
    """One push of all items. Items of a single priority are pushed as columns."""
    priorities = {priority for _, priority in items}
    if len(priorities) == 1:
        batch = PlainBatch([payload for payload, _ in items], priority=priorities.pop())
        return Push(queue=queue, messages=batch, create=vocabulary.POLICY)
    messages = [NewMessage(payload, DEFAULT_PARTITION, priority) for payload, priority in items]
    return Push(queue=queue, messages=messages, create=vocabulary.POLICY)


def routes(broker: AsyncBroker, default_priority: int) -> list[Route]:
    async def push(call: Call) -> Answer:
        queue = vocabulary.queue_id(call)
        items, is_list = read(await call.body(), default_priority)
        call.messages = len(items)
        command = push_of(queue, items)
        if has_trace(call):
            (command,) = traced([command], call)
        await broker.send(command)
        if is_list:
            message = f"{len(items)} items pushed to queue {queue}"
            return answer({"success": True, "message": message, "items_pushed": len(items)})
        return answer({"success": True, "message": f"Item pushed to queue {queue} with priority {items[0][1]}"})

    return [Route("POST", "/queue/{queue}/push", push)]


DEEP = 500
_MARGIN = 100
_SHAPES = bytes.maketrans(b"123456789E", b"000000000e")
_SUSPECT = (b"0e000", b"0" * 200)
"""After all digits become 0: an item without these texts has no number above a double's range."""


def check_readable(item: bytes, what: str) -> None:
    """Raises `BadInput` for numbers above a double's range and for deep nesting. Parses only suspicious items."""
    shape = item.translate(_SHAPES, b"+")
    if any(suspect in shape for suspect in _SUSPECT):
        try:
            json.loads(item, parse_int=_number, parse_float=_number)
        except OverflowError:
            raise BadInput(f"{what} has a number that is too large for a double") from None
        except RecursionError:
            raise BadInput(f"{what} is nested too deeply") from None
    if item.count(b"{") + item.count(b"[") > DEEP:
        try:
            msgspec.json.decode(b"[" * _MARGIN + item + b"]" * _MARGIN)
        except RecursionError:
            raise BadInput(f"{what} is nested too deeply") from None


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise OverflowError
    return number
