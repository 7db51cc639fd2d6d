"""Pages `/docs` (Swagger UI over `/openapi.json`) and `/docs/errors` (the codes of errors)."""

from __future__ import annotations

import html
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ackwise.core.errors import AckwiseError
from ackwise.protocols.http_request import Call
from ackwise.protocols.http_response import Answer, NoSuchRoute, Route
from ackwise.protocols.problem_documents import title_of
from ackwise.server.openapi import cached_answer
from ackwise.wire.http_status import status_of

SWAGGER_UI = Path(__file__).parent / "swagger_ui"
"""Files of Swagger UI. `make venv` extracts them from a wheel, and our wheel contains them. Git ignores them."""
ASSETS = Path(__file__).parent / "docs_assets"
HTML = b"text/html; charset=utf-8"
_KINDS = {".js": b"text/javascript; charset=utf-8", ".css": b"text/css; charset=utf-8"}
_SHARED = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_POLICY = (
    b"%b; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; connect-src 'self'"
)
_HEADERS = ((b"referrer-policy", b"no-referrer"),)
_PAGE = b"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Ackwise API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</head>
<body><div id="swagger-ui"></div></body>
</html>
"""
_WITHOUT_FILES = b"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Ackwise API</title></head>
<body>
<p>The files of Swagger UI are not installed: run <code>make venv</code> in the repository, or install Ackwise's wheel.
The description of the API is at <a href="/openapi.json">/openapi.json</a>.</p>
</body>
</html>
"""
FILES = {
    "swagger-ui-bundle.js": SWAGGER_UI,
    "swagger-ui.css": SWAGGER_UI,
    "start.js": ASSETS,
}
"""Files that `/docs/{file}` serves, by their folders."""


def docs_routes() -> list[Route]:
    return [
        Route("GET", "/docs", _docs, page=True),
        Route("GET", "/docs/errors", _errors, page=True),
        Route("GET", "/docs/{file}", _file, page=True),
    ]


async def _docs(call: Call) -> Answer:
    installed = all((folder / name).is_file() for name, folder in FILES.items())
    headers = (*_HEADERS, (b"content-security-policy", _POLICY % _SHARED))
    return cached_answer(call, _PAGE if installed else _WITHOUT_FILES, HTML, headers)


async def _file(call: Call) -> Answer:
    name = call.params[0]
    content = _content(name) if name in FILES else None
    if content is None:
        raise NoSuchRoute(path=call.scope["path"])
    return cached_answer(call, content, _KINDS[Path(name).suffix])


@cache
def _content(name: str) -> bytes | None:
    """A file, read once. None if the file is not installed."""
    file = FILES[name] / name
    return file.read_bytes() if file.is_file() else None


async def _errors(call: Call) -> Answer:
    headers = (*_HEADERS, (b"content-security-policy", _SHARED))
    return cached_answer(call, _error_page(), HTML, headers)


def error_codes() -> dict[str, tuple[int, str]]:
    """Status and title of every code that a loaded package defines, by code."""
    codes: dict[str, tuple[int, str]] = {}
    for kind in _below(AckwiseError):
        if kind.__module__.startswith("ackwise.") and kind.code not in codes:
            codes[kind.code] = (status_of(kind.__new__(kind)), title_of(kind))
    return dict(sorted(codes.items()))


def _below(kind: type[AckwiseError]) -> Iterator[type[AckwiseError]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _below(subclass)


def _error_page() -> bytes:
    """The page that the `type` of a problem document refers to."""
    rows = "".join(
        f'<dt id="{html.escape(code)}"><code>{html.escape(code)}</code> ({status})</dt><dd>{html.escape(title)}</dd>\n'
        for code, (status, title) in error_codes().items()
    )
    head = '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>Error codes</title></head>\n'
    return f"{head}<body>\n<h1>Error codes</h1>\n<dl>\n{rows}</dl>\n</body>\n</html>\n".encode()
