"""Documentation of MEW's routes for `/openapi.json`. It imports nothing of MEW, which is an extra."""

from __future__ import annotations

from typing import Any

import msgspec

from ackwise.protocols.route_docs import RouteDoc

TAG = "mew"


class MewAnswer(msgspec.Struct):
    """Session and output lines: results, events, notices and errors."""

    session: str
    lines: list[dict[str, Any]]
    fine: bool | msgspec.UnsetType = msgspec.UNSET


class EndedSession(msgspec.Struct):
    session: str
    ended: bool


class MewError(msgspec.Struct):
    error: str
    code: str


class DeleteQuery(msgspec.Struct):
    lost: str | msgspec.UnsetType = msgspec.UNSET


def docs(body: Any) -> dict[str, RouteDoc]:
    """Documentation of the routes whose request has the type `body`."""
    return {
        "POST /mew": RouteDoc(
            summary="Run MEW statements, or fetch events of a session",
            tag=TAG,
            body=body,
            answers={200: MewAnswer},
            errors=(404, 409, 422, 501),
            error=MewError,
        ),
        "DELETE /mew/{session}": RouteDoc(
            summary="End a MEW session", tag=TAG, query=DeleteQuery, answers={200: EndedSession}, error=MewError
        ),
    }
