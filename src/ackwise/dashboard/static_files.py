"""Static files of the dashboard: its own style and script, and the files of htmx."""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

HTMX = Path(__file__).parent / "htmx"
"""Files of htmx. `make venv` extracts them from a wheel, and our wheel contains them. Git ignores them."""
STATIC = Path(__file__).parent / "static"
FILES = {
    "dashboard.css": STATIC,
    "dashboard.js": STATIC,
    "theme.js": STATIC,
    "htmx-2.min.js": HTMX,
    "hx-sse-2.min.js": HTMX,
}
"""Files that `/static/{file}` serves, by their folders."""
_KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_CACHED = "public, max-age=31536000, immutable"


class StaticFiles:
    """The contents of the files, read once."""

    def __init__(self) -> None:
        self._contents = {name: folder.joinpath(name) for name, folder in FILES.items()}
        self.contents = {name: file.read_bytes() for name, file in self._contents.items() if file.is_file()}
        self.live = all(name in self.contents for name, folder in FILES.items() if folder is HTMX)
        """Whether the files of htmx are installed. Without them the pages do not update themselves."""
        digest = hashlib.sha256(b"".join(self.contents[name] for name in sorted(self.contents)))
        self.version = digest.hexdigest()[:12]
        """Part of the URL of each file, so that a browser may keep the file for ever."""

    def answer(self, request: Request, name: str) -> Response | None:
        """A file, or None for an unknown one."""
        content = self.contents.get(name)
        if content is None:
            return None
        current = request.query_params.get("v") == self.version
        headers = {"cache-control": _CACHED if current else "no-cache", "x-content-type-options": "nosniff"}
        return Response(content, media_type=_KINDS[Path(name).suffix], headers=headers)
