"""HTTP status of each error: by its code, else by its class."""

from __future__ import annotations

from ackwise.core import errors

STATUS: dict[str, int] = {
    "forbidden": 403,
    "forbidden_host": 403,
    "forbidden_origin": 403,
    "no_such_route": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "precondition_failed": 412,
    "unsupported_media_type": 415,
    "body_too_large": 413,
    "body_too_slow": 408,
    "payload_too_large": 413,
    "statement_limit": 422,
    "overloaded": 429,
    "missing_extra": 501,
    "answers_full": 503,
    "draining": 503,
    "maintenance": 503,
    "store_unavailable": 503,
    "store_locked": 503,
    "store_full": 507,
    "store_read_only": 503,
}


def status_of(problem: errors.AckwiseError) -> int:
    """HTTP status of an error."""
    known = STATUS.get(problem.code)
    if known is not None:
        return known
    if isinstance(problem, errors.BadInput):
        return 400
    if isinstance(problem, errors.NotFound):
        return 404
    if isinstance(problem, errors.Conflict):
        return 409
    return 503 if isinstance(problem, errors.StoreError) else 500
