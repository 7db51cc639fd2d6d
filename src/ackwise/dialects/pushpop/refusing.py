"""Errors in PushPop's shape: one flat object."""

from __future__ import annotations

from ackwise.core.errors import AckwiseError, BadInput, Draining, Overloaded, StoreError, StoreUnavailable
from ackwise.dialects.http import (
    Answer,
    ForbiddenHost,
    ForbiddenOrigin,
    MethodNotAllowed,
    NoSuchRoute,
    answer,
    encode,
    retry_later,
    status_of,
)
from ackwise.dialects.pushpop import words

_UNEXPECTED = "internal error; the server's log has more"
_COME_AGAIN = (Overloaded, Draining, StoreUnavailable)


def refused(problem: AckwiseError | None) -> Answer:
    """None is an error that nobody expected. What goes wrong inside the store is not told outside."""
    if isinstance(problem, NoSuchRoute) and problem.details["path"].startswith("/queue//"):
        return bad(words.BAD_QUEUE_ID)
    if isinstance(problem, BadInput | NoSuchRoute | MethodNotAllowed | ForbiddenHost | ForbiddenOrigin):
        return answer({"success": False, "message": problem.message}, status_of(problem))
    message = (type(problem).__doc__ or "").strip() if isinstance(problem, StoreError) else _UNEXPECTED
    if isinstance(problem, _COME_AGAIN):
        status = status_of(problem)
        told = message if isinstance(problem, StoreError) else problem.message
        return Answer(encode({"success": False, "message": told}), status, headers=retry_later(problem, status))
    return answer({"success": False, "message": message}, 500)


def bad(message: str, error_code: str | None = None) -> Answer:
    body = {"success": False, "message": message}
    return answer(body if error_code is None else {**body, "error_code": error_code}, 400)
