"""PushPop's vocabulary: ids, default policy, request options, and the form of errors."""

from __future__ import annotations

import re
import secrets
from typing import Any

import msgspec

from ackwise.core.errors import AckwiseError, BadInput, Draining, Overloaded, StoreError, StoreUnavailable
from ackwise.core.policy import QueuePolicy
from ackwise.core.validation import MICROS
from ackwise.protocols.http_request import Call, parse
from ackwise.protocols.http_response import (
    Answer,
    ForbiddenHost,
    ForbiddenOrigin,
    MethodNotAllowed,
    NoSuchRoute,
    answer,
    encode,
    retry_headers,
)
from ackwise.wire.http_status import status_of

DEFAULT_TTL = 30
SHORTEST_TTL, LONGEST_TTL = 1, 300
MOST_POPPED = 100
MOST_PUSHED = 1000
LONGEST_LOCK_ID = 128

POLICY = QueuePolicy(lease_seconds=DEFAULT_TTL, retry_limit=None, delivery_limit=None, exclusivity="queue")
"""Policy of queues that PushPop creates. A lock may expire any number of times: the item always returns."""

BAD_QUEUE_ID = "queue_id has 1 to 64 letters, digits, - and _"
LOCKED = "Queue is locked pending acknowledgement"
REQUIRED = "lock_id is required"
INVALID = "Invalid lock_id"
NOT_FOUND = "No active lock found"
EXPIRED = {"success": False, "message": "Lock has expired", "error_code": "LOCK_EXPIRED"}

_QUEUE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_queue_id(text: str) -> bool:
    return _QUEUE_ID.fullmatch(text) is not None


def queue_id(call: Call) -> str:
    """The queue id in the path."""
    text = call.params[0]
    if not is_queue_id(text):
        raise BadInput(BAD_QUEUE_ID)
    return text


def new_lock_id() -> str:
    """Random lock id of eleven characters."""
    return secrets.token_urlsafe(8)


def seconds(micros: int) -> float:
    """A time or duration in seconds, as PushPop writes it."""
    return micros / MICROS


_UNEXPECTED = "internal error; the server's log has more"
_RETRYABLE = (Overloaded, Draining, StoreUnavailable)


def error_answer(problem: AckwiseError | None) -> Answer:
    """Writes an error in PushPop's form. None is an unexpected exception. Hides details of store errors."""
    if isinstance(problem, NoSuchRoute) and problem.details["path"].startswith("/queue//"):
        return bad(BAD_QUEUE_ID)
    if isinstance(problem, BadInput | NoSuchRoute | MethodNotAllowed | ForbiddenHost | ForbiddenOrigin):
        return answer({"success": False, "message": problem.message}, status_of(problem))
    message = (type(problem).__doc__ or "").strip() if isinstance(problem, StoreError) else _UNEXPECTED
    if isinstance(problem, _RETRYABLE):
        status = status_of(problem)
        text = message if isinstance(problem, StoreError) else problem.message
        return Answer(encode({"success": False, "message": text}), status, headers=retry_headers(problem, status))
    return answer({"success": False, "message": message}, 500)


def bad(message: str, error_code: str | None = None) -> Answer:
    body = {"success": False, "message": message}
    return answer(body if error_code is None else {**body, "error_code": error_code}, 400)


_WHOLE = re.compile(r"[+-]?[0-9]+")
_LONGEST_NUMBER = 18
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_object = msgspec.json.Decoder(dict[str, Any])


def option(call: Call, name: str) -> str | None:
    """An option from the query, else from the header of the same name."""
    value = call.query.get(name)
    if value is not None:
        return value
    header = call.header(name.encode())
    return header.decode("latin-1") if header else None


def flag(call: Call, name: str) -> bool:
    text = option(call, name)
    if text is None:
        return False
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise BadInput(f"{name} must be true or false, not {text!r:.50}")


def number(call: Call, name: str, default: int) -> int:
    """A whole number. A number with more than 18 digits counts as 10**18."""
    text = option(call, name)
    if text is None:
        return default
    if not _WHOLE.fullmatch(text):
        raise BadInput(f"{name} must be a whole number, not {text!r:.50}")
    digits = text.lstrip("+-0") or "0"
    size = int(digits) if len(digits) <= _LONGEST_NUMBER else 10**_LONGEST_NUMBER
    return -size if text.startswith("-") else size


def whole(value: object, name: str, least: int, most: int) -> int:
    """A whole number in a body, from `least` to `most`. Rejects booleans, floats and text."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadInput(f"{name} must be a whole number from {least} to {most}")
    return value


async def read_object(call: Call) -> dict[str, Any]:
    """The body as an object. Ignores the content type. An empty body counts as `{}`."""
    body = await call.body()
    return parse(_object, body) if body.strip() else {}
