"""ASGI application of the dashboard: finds the page of a request, checks changes, and answers errors as pages."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import version
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ackwise.broker import AsyncBroker
from ackwise.core.errors import AckwiseError, NotFound
from ackwise.dashboard import pages
from ackwise.dashboard.catalogue import CatalogueReader
from ackwise.dashboard.dead_letter_jobs import DeadLetterJobs
from ackwise.dashboard.formats import add_formats
from ackwise.dashboard.guard import FormGuard
from ackwise.dashboard.live import LiveEvents
from ackwise.dashboard.request import PageRequest
from ackwise.dashboard.routes import READ, PageTable, RouteMatch
from ackwise.dashboard.settings import ShownSetting
from ackwise.dashboard.snapshots import Snapshots
from ackwise.dashboard.statements import Statements
from ackwise.dashboard.static_files import StaticFiles
from ackwise.wire.http_status import status_of

log = logging.getLogger("ackwise.dashboard")

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "vary": "HX-Request",
}
"""Headers of every page. Browsers send `Origin: null` with the forms of a page without a referrer, so the policy is
`same-origin`."""
PAGE_PATH = "ackwise.page_path"
"""Scope key of the path below the mount, encoded."""
PAGE_ROUTE = "ackwise.page_route"
"""Scope key of the route's pattern, for events: the number of patterns is small, the number of paths is not."""

SERVER_STREAM = 3600.0
"""Seconds of one connection for live events. A server ends its connections itself when it drains."""

GetBroker = Callable[[], AsyncBroker | Awaitable[AsyncBroker]]


class NoSuchPage(NotFound):
    """The dashboard has no such page."""

    code = "no_such_route"


class Dashboard:
    """The dashboard as an ASGI application, at any root path."""

    def __init__(
        self,
        broker: GetBroker,
        *,
        read_only: bool = False,
        home: str | None = None,
        settings: Sequence[ShownSetting] = (),
        statements: Callable[[], Statements | None] = lambda: None,
        stream_seconds: float = SERVER_STREAM,
        label: str = "",
    ) -> None:
        """`home` is the URL of the overview, if it is not the root path. `settings` are shown on their page.

        `statements` runs the graph page's statements. It returns None where MEW is not installed.
        `stream_seconds` is the longest time of one connection for live events. `label` is a word in the header.
        """
        self._broker = broker
        self.guard = FormGuard(read_only=read_only)
        self.home, self.label = home, label
        self.settings, self.statements = settings, statements
        self.snapshots = Snapshots()
        self.live = LiveEvents(stream_seconds)
        self.jobs = DeadLetterJobs(self.live, self.snapshots)
        self.catalogue = CatalogueReader(self.live.changed_all)
        self.files = StaticFiles()
        self.version = version("ackwise")
        self.templates = Environment(
            loader=PackageLoader("ackwise.dashboard"),
            autoescape=select_autoescape(("j2", "html")),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        add_formats(self.templates)
        self._table = PageTable(route for module in pages.MODULES for route in module.ROUTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the dashboard does not serve {scope['type']}")
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        await response(scope, receive, send)

    def is_page(self, scope: Scope) -> bool:
        """Whether a page answers a GET of the path. A page changes nothing."""
        return isinstance(self._table.find("GET", page_path(scope)), RouteMatch)

    async def _answer(self, request: Request) -> Response:
        path = request.scope[PAGE_PATH] = page_path(request.scope)
        if path.startswith("/static/") and request.method in ("GET", "HEAD"):
            request.scope[PAGE_ROUTE] = "/static/{file}"
            answer = self.files.answer(request, path.removeprefix("/static/"))
            return answer or Response("no such file", 404, media_type="text/plain")
        try:
            running = await self.broker()
        except AckwiseError as problem:
            return Response(problem.message, status_of(problem), media_type="text/plain")
        if path == "/live" and request.method == "GET":
            request.scope[PAGE_ROUTE] = path
            return self._live(request, running)
        page = PageRequest(self, running, request, {})
        try:
            return await self._run(page, path)
        except AckwiseError as problem:
            return self._problem(page, status_of(problem), problem.message)
        except ClientDisconnect:
            raise
        except Exception:
            log.exception("%s %s failed", request.method, request.scope["path"])
            return self._problem(page, 500, "internal error; the server's log has more")

    async def broker(self) -> AsyncBroker:
        broker = self._broker()
        return await broker if inspect.isawaitable(broker) else broker

    def _live(self, request: Request, broker: AsyncBroker) -> Response:
        try:
            self.guard.check(request, READ)
            return self.live.response(broker, request.query_params.get("topics", ""))
        except AckwiseError as problem:
            return Response(problem.message, status_of(problem), media_type="text/plain")

    async def _run(self, page: PageRequest, path: str) -> Response:
        request = page.request
        method = "GET" if request.method == "HEAD" else request.method
        match = self._table.find(method, path)
        if not isinstance(match, RouteMatch):
            if match:
                problem = self._problem(page, 405, f"this page does not allow {request.method}")
                problem.headers["allow"] = ", ".join(sorted(match))
                return problem
            raise NoSuchPage()
        route, page.params = match
        request.scope[PAGE_ROUTE] = route.path
        self.guard.check(request, route.right)
        if method == "POST":
            await page.read_form()
            self.guard.check_form(request, page.form)
        return await route.handler(page)

    def _problem(self, page: PageRequest, status: int, message: str) -> Response:
        return page.render("problem.html.j2", status, status=status, message=message)


def page_path(scope: Scope) -> str:
    """Path below the mount, still percent-encoded, so that a name may contain a slash."""
    raw = scope.get("raw_path")
    path = raw.decode("ascii", "replace").partition("?")[0] if raw else quote(scope["path"], safe="/~%")
    root: str = scope.get("root_path", "").rstrip("/")
    if not root:
        return path
    segments = path.split("/")
    depth = root.count("/") + 1
    if segments[:depth] == [quote(part, safe="~") for part in root.split("/")]:
        return "/" + "/".join(segments[depth:])
    return path.removeprefix(root) or "/"
