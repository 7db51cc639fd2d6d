"""Page at `/`: name and version of the server, with a link to its health."""

from __future__ import annotations

from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, Route, answer
from ackwise.protocols.product_version import VERSION
from ackwise.protocols.route_docs import RouteDoc

_HTML = f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Ackwise</title></head>
<body>
<h1>Ackwise {VERSION}</h1>
<p>This is the API of a message queue. <a href="/docs">Documentation of the API</a>,
<a href="/health">health</a></p>
</body>
</html>
""".encode()
_HEADERS = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"vary", b"Accept"),
)


_DOC = RouteDoc(
    summary="Name and version of the server, for browsers as a page",
    tag="server",
    answers={200: dict[str, str]},
    answer_types=("application/json", "text/html"),
)


def home_routes() -> list[Route]:
    return [Route("GET", "/", _home, page=True, doc=_DOC)]


async def _home(call: Call) -> Answer:
    """HTML for browsers, JSON for programs."""
    if b"text/html" in call.header(b"accept"):
        return Answer(_HTML, content_type=b"text/html; charset=utf-8", headers=_HEADERS)
    return answer({"server": "ackwise", "version": VERSION, "health": "/health"})
