"""Errors in PushPop's shape: one flat object."""

from __future__ import annotations

from ackwise.core.errors import AckwiseError, StoreError
from ackwise.dialects.http import Answer, answer, encode, retry_later, status_of

_SAID = (400, 404, 408, 413, 429, 503, 507)
_UNEXPECTED = "internal error; the server's log has more"


def refused(problem: AckwiseError | None) -> Answer:
    """None is an error that nobody expected. What goes wrong inside the store is not told outside."""
    status = status_of(problem) if problem is not None else 500
    if problem is None or status not in _SAID:
        return answer({"success": False, "message": _UNEXPECTED}, 500)
    inside = isinstance(problem, StoreError)
    message = (type(problem).__doc__ or "").strip() if inside else problem.message
    body = {"success": False, "message": message}
    return Answer(encode(body), status, headers=retry_later(problem, status))


def bad(message: str, error_code: str | None = None) -> Answer:
    body = {"success": False, "message": message}
    return answer(body if error_code is None else {**body, "error_code": error_code}, 400)
