"""Request of a page: parameters, reads, changes and the rendered answer."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ackwise.broker import AsyncBroker
from ackwise.core.commands import Command
from ackwise.core.errors import BadInput
from ackwise.core.queries import Query
from ackwise.dashboard.catalogue import Catalogue, Rates, read_rates
from ackwise.dashboard.guard import COOKIE, TOKEN_FIELD, new_cookie, token_of, valid_cookie
from ackwise.dashboard.routes import encode
from ackwise.dashboard.snapshots import INTERVAL

if TYPE_CHECKING:
    from ackwise.dashboard.app import Dashboard

A = TypeVar("A")

NOTICE_COOKIE = "ackwise_notice"
LONGEST_NOTICE = 300
LARGEST_FORM = 2 << 20
"""Most bytes of a form."""
MOST_FIELDS = 2000
FORM_SECONDS = 30.0
"""Seconds in which a form must arrive."""
HOME = "overview"


class PageRequest:
    """One request to a page, with what the page's function needs."""

    def __init__(self, dashboard: Dashboard, broker: AsyncBroker, request: Request, params: Mapping[str, str]) -> None:
        self.dashboard, self.broker, self.request = dashboard, broker, request
        self.params = params
        """Parameters of the path, decoded."""
        self.query: QueryParams = request.query_params
        self.form: dict[str, str] = {}
        """Fields of the form of a POST. A repeated field has its last value."""
        self.fields: dict[str, list[str]] = {}
        """All values of each field, for check boxes."""
        self.now: int = broker.wall()
        cookie = request.cookies.get(COOKIE, "")
        self._new_cookie = not valid_cookie(cookie)
        self._cookie = new_cookie() if self._new_cookie else cookie

    # reads and changes

    async def ask(self, query: Query[A]) -> A:
        """Run a query now. Use `cached` on pages with live blocks."""
        return await self.broker.ask(query)

    async def cached(
        self, key: Hashable, query: Query[A] | Callable[[], Awaitable[A]], interval: float = INTERVAL
    ) -> A:
        """Run a query, or a function, at most once per interval for all pages that use this key."""
        read = (lambda: self.broker.ask(query)) if isinstance(query, Query) else query
        return await self.dashboard.snapshots.get(key, read, interval)

    async def send(self, command: Command[A]) -> A:
        """Run a command. Pages show its effect at once."""
        try:
            return await self.broker.send(command)
        finally:
            self.dashboard.snapshots.clear()
            self.dashboard.catalogue.forget()
            self.dashboard.live.changed_all()

    async def catalogue(self) -> Catalogue:
        """Totals of all queues, read at most once in a few seconds."""
        return await self.dashboard.catalogue.read(self.broker)

    async def rates(self) -> Rates:
        """Current rates of all queues."""
        return await self.cached(("rates",), lambda: read_rates(self.broker))

    def may(self, right: str) -> bool:
        """Whether the caller has a right."""
        return self.dashboard.guard.may(self.request, right)

    def require(self, right: str) -> None:
        """Raise `Refused` if the caller lacks a right. For pages that lead to a change, such as forms."""
        self.dashboard.guard.check(self.request, right)

    # links

    @property
    def root(self) -> str:
        """Path at which the dashboard is mounted, encoded, without a slash at its end."""
        return quote(self.request.scope.get("root_path", "").rstrip("/"), safe="/~")

    def link(self, name: str, *segments: str, **query: object) -> str:
        """URL of a page. Leaves out keywords that are None or empty."""
        if name == HOME and not segments:
            path = self.dashboard.home or f"{self.root}/"
        else:
            path = "/".join((self.root, name, *map(encode, segments)))
        given = [(key.rstrip("_"), str(value)) for key, value in query.items() if value is not None and value != ""]
        return f"{path}?{urlencode(given)}" if given else path

    def cli(self, *words: str) -> str:
        """A command line of `ackwise` to copy. On the dashboard of a server the command has the server's URL."""
        if not self.dashboard.home:
            return shlex.join(("ackwise", *words))
        base = self.request.url
        return shlex.join(("ackwise", *words, "--url", f"{base.scheme}://{base.netloc}"))

    def here(self, **changes: object) -> str:
        """URL of this page with changed keywords of the query string. None removes a keyword."""
        given = {**dict(self.query), **changes}
        kept = [(key, str(value)) for key, value in given.items() if value is not None and value != ""]
        path = quote(self.request.scope["path"], safe="/~") if not self.path else f"{self.root}{self.path}"
        return f"{path}?{urlencode(kept)}" if kept else path

    @property
    def path(self) -> str:
        """Path of this page below the mount, encoded."""
        path: str = self.request.scope.get("ackwise.page_path", "")
        return path

    # answers

    @property
    def is_block(self) -> bool:
        """Whether a live block or a dialog sent the request. Their answers have no navigation."""
        return "hx-request" in self.request.headers

    def render(self, template: str, status: int = 200, /, **context: Any) -> Response:
        """The page of a template."""
        body = self.dashboard.templates.get_template(template).render(**self._context(), **context)
        response = Response(body, status, media_type="text/html; charset=utf-8")
        self._set_cookies(response)
        return response

    def fragment(self, template: str, /, **context: Any) -> str:
        """The text of a template that is part of a page, for a stream."""
        return self.dashboard.templates.get_template(template).render(**self._context(), **context)

    def redirect(self, url: str, notice: str = "") -> Response:
        """Answer to a change: the browser opens the URL, which shows the notice once."""
        response = RedirectResponse(url, 303)
        if notice:
            self._set_cookie(response, NOTICE_COOKIE, quote(notice[:LONGEST_NOTICE]), max_age=60)
        return response

    def confirm(
        self,
        *,
        title: str,
        action: str,
        question: str,
        button: str,
        back: str,
        details: Sequence[str] = (),
        fields: Mapping[str, str] | None = None,
        typed: str | None = None,
        error: str = "",
        status: int = 200,
    ) -> Response:
        """Page that asks before a change. `typed` is the name that the user must type into the field `typed`.

        `action` is the URL of the POST, `fields` its hidden fields, `back` the URL of the link that cancels.
        """
        return self.render(
            "confirm.html.j2", status, heading=title, action=action, question=question, button=button, back=back,
            details=details, fields=fields or {}, typed=typed, error=error,
        )  # fmt: skip

    def typed(self, name: str) -> bool:
        """Whether the user typed the name into the field of `confirm`."""
        return self.form.get("typed", "").strip() == name.strip()

    def _context(self) -> dict[str, Any]:
        dashboard = self.dashboard
        return {
            "page": self,
            "layout": "fragment.html.j2" if self.is_block else "base.html.j2",
            "link": self.link,
            "here": self.here,
            "cli": self.cli,
            "root": self.root,
            "may": self.may,
            "read_only": dashboard.guard.read_only,
            "label": dashboard.label,
            "now": self.now,
            "form_token": token_of(self._cookie),
            "token_field": TOKEN_FIELD,
            "notice": "" if self.is_block else unquote(self.request.cookies.get(NOTICE_COOKIE, ""))[:LONGEST_NOTICE],
            "live_files": dashboard.files.live,
            "product_version": dashboard.version,
            "asset": dashboard.files.version,
        }

    def _set_cookies(self, response: Response) -> None:
        if self._new_cookie:
            self._set_cookie(response, COOKIE, self._cookie)
        if not self.is_block and NOTICE_COOKIE in self.request.cookies:
            self._set_cookie(response, NOTICE_COOKIE, "", max_age=0)

    def _set_cookie(self, response: Response, name: str, value: str, max_age: int | None = None) -> None:
        path = "/" if self.dashboard.home else f"{self.root}/"
        secure = self.request.url.scheme == "https"
        response.set_cookie(name, value, max_age, path=path, httponly=True, samesite="lax", secure=secure)

    async def read_form(self) -> None:
        """Read the fields of a POST, with bounds on their size, their number and the time that they take."""
        if not self.request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            raise BadInput("the form has the wrong content type; use application/x-www-form-urlencoded")
        body = bytearray()
        try:
            async with asyncio.timeout(FORM_SECONDS):
                async for piece in self.request.stream():
                    body += piece
                    if len(body) > LARGEST_FORM:
                        raise BadInput(f"the form is larger than {LARGEST_FORM} bytes")
        except TimeoutError:
            raise BadInput(f"the form did not arrive within {FORM_SECONDS:g} seconds") from None
        try:
            pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
        except ValueError:
            raise BadInput(f"the form is not valid UTF-8 or has more than {MOST_FIELDS} fields") from None
        for key, value in pairs:
            self.fields.setdefault(key, []).append(value.replace("\r\n", "\n"))
        self.form = {key: values[-1] for key, values in self.fields.items()}
