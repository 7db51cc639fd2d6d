"""Route `/`: the dashboard for browsers, name and version of the server for programs."""

from __future__ import annotations

from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Handler, Route, answer
from ackwise.protocols.product_version import VERSION
from ackwise.protocols.route_docs import RouteDoc

_DOC = RouteDoc(
    summary="Name and version of the server, for browsers the dashboard",
    tag="server",
    answers={200: dict[str, str]},
    answer_types=("application/json", "text/html"),
)
_VARY = ((b"vary", b"Accept, HX-Request"),)


def home_routes(overview: Handler | None = None) -> list[Route]:
    """`overview` answers browsers. Without one they get JSON, too."""

    async def home(call: Call) -> Answer:
        if overview is not None and (b"text/html" in call.header(b"accept") or call.header(b"hx-request")):
            return await overview(call)
        reply = answer({"server": "ackwise", "version": VERSION, "health": "/health"})
        reply.headers = _VARY
        return reply

    return [Route("GET", "/", home, page=True, doc=_DOC)]
