"""Push: a form that pushes one message."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from ackwise.core import validation
from ackwise.core.commands import Push
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.messages import DEFAULT_PARTITION, JSON, NewMessage
from ackwise.core.policy import NEW_QUEUE_POLICY
from ackwise.dashboard import filters
from ackwise.dashboard.pages.names import queue_names
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import CHANGE, get, post
from ackwise.wire import payloads
from ackwise.wire.http_status import status_of

TEXT = "text/plain"
KINDS = {"json": JSON, "text": TEXT}
MOST_HEADERS = 100
_FIELDS = ("queue", "payload", "kind", "headers", "partition", "priority", "delay", "transaction_id", "create")


async def show(page: PageRequest) -> Response:
    given = {field: page.query.get(field, "") for field in _FIELDS}
    return await _form(page, {**given, "kind": given["kind"] or "json"})


async def _form(page: PageRequest, given: dict[str, str], problem: str = "", status: int = 200) -> Response:
    may_push = page.may(CHANGE)
    return page.render(
        "push.html.j2", status, given=given, problem=problem, queues=await queue_names(page), may_push=may_push
    )


async def push(page: PageRequest) -> Response:
    given = {field: page.form.get(field, "") for field in _FIELDS}
    try:
        command = _command(given)
        receipt = (await page.send(command))[0]
    except AckwiseError as problem:
        return await _form(page, given, problem.message, status_of(problem))
    stored = {
        "duplicate": "A message with this transaction id is already stored. Nothing was pushed.",
        "scheduled": "Message stored. It becomes claimable after its delay.",
    }.get(receipt.status, "Message stored.")
    return page.redirect(page.link("messages", receipt.partition_id, receipt.transaction_id), stored)


def _command(given: dict[str, str]) -> Push:
    """The command of a filled form. The broker checks names and numbers once more."""
    kind = KINDS.get(given["kind"])
    if kind is None:
        raise BadInput(f"kind must be json or text, not {given['kind']!r:.40}")
    message = NewMessage(
        _payload(given["payload"], kind),
        partition=given["partition"] or DEFAULT_PARTITION,
        priority=filters.number(given["priority"], "priority", least=-validation.MAX_PRIORITY) or 0,
        transaction_id=given["transaction_id"] or None,
        headers=_headers(given["headers"]),
        content_type=kind,
        delay=_delay(given["delay"]),
    )
    create = NEW_QUEUE_POLICY if given["create"] else None
    return Push(queue=validation.name(given["queue"], "queue"), messages=[message], create=create)


def _payload(text: str, kind: str) -> bytes:
    payload = text.encode()
    if kind != JSON:
        return payload
    if not text.strip():
        raise BadInput('the payload is empty; write JSON such as {"id": 1}, or choose text')
    if not payloads.are_json([payload]):
        raise BadInput("the payload is not JSON; correct it, or choose text")
    return bytes(msgspec.Raw(payload))


def _headers(text: str) -> dict[str, str] | None:
    """Headers out of lines `name: value`."""
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) > MOST_HEADERS:
        raise BadInput(f"the form takes {MOST_HEADERS} headers, not {len(lines)}; push with the API instead")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.strip()
        if not colon or not name:
            raise BadInput(f"write each header as name: value, not {line!r:.80}")
        if name in headers:
            raise BadInput(f"the header {name!r:.80} is given twice")
        headers[name] = value.strip()
    return headers or None


def _delay(text: str) -> int:
    """Microseconds of a delay in seconds."""
    if not text.strip():
        return 0
    try:
        seconds = float(text)
    except ValueError:
        raise BadInput(f"delay must be a number of seconds, not {text!r:.40}") from None
    return validation.micros(seconds, "delay")


ROUTES = (get("/messages/push", show), post("/messages/push", push))
