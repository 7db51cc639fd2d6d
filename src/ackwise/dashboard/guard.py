"""Guard: decides whether a caller may read or change something in the dashboard.

A change needs a form token, an origin that is the dashboard itself, and a dashboard that is not read-only.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from starlette.requests import Request

from ackwise.core.errors import AckwiseError
from ackwise.dashboard.routes import READ

COOKIE = "ackwise_form"
TOKEN_FIELD = "form_token"  # noqa: S105 # the name of a field
_COOKIE_LENGTH = 32
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Refused(AckwiseError):
    """The dashboard does not allow this change."""

    code = "forbidden"


class FormGuard:
    """Checks the rights of a caller, for every page and every change."""

    def __init__(self, *, read_only: bool = False) -> None:
        self.read_only = read_only

    def may(self, request: Request, right: str) -> bool:
        """Whether the caller has the right. Templates ask before they show a button."""
        return right == READ or not self.read_only

    def check(self, request: Request, right: str) -> None:
        """Raise `Refused` if the caller does not have the right."""
        if not self.may(request, right):
            raise Refused(
                "this dashboard is read-only; use the command line, or start the server without --read-only-dashboard"
            )

    def check_form(self, request: Request, form: Mapping[str, str]) -> None:
        """Raise `Refused` unless a page of this dashboard sent the form."""
        if not _own_origin(request):
            raise Refused("another web site sent this form; nothing was changed")
        cookie = request.cookies.get(COOKIE, "")
        if not cookie or not hmac.compare_digest(token_of(cookie).encode(), form.get(TOKEN_FIELD, "").encode()):
            raise Refused("the form is out of date or did not come from this dashboard; open the page again and repeat")


def new_cookie() -> str:
    """A secret of one browser. The server computes the browser's form tokens from it."""
    return secrets.token_hex(_COOKIE_LENGTH // 2)


def valid_cookie(value: str) -> bool:
    return len(value) == _COOKIE_LENGTH and value.isalnum() and value.isascii()


def token_of(cookie: str) -> str:
    """The token of a browser's forms.

    Every server computes the same token from the cookie, so a form also works if another server behind the same
    address receives it. A page of another site can neither read the cookie nor send its own origin as this one.
    """
    return hashlib.sha256(b"ackwise form\0" + cookie.encode()).hexdigest()


def _own_origin(request: Request) -> bool:
    """Whether the browser says that the request comes from the same origin. A program sends neither header."""
    site = request.headers.getlist("sec-fetch-site")
    if site:
        return site in (["same-origin"], ["none"])
    origins = request.headers.getlist("origin")
    if not origins:
        return True
    scheme, _, host = origins[0].lower().partition("://")
    own = request.headers.get("host", "").lower()
    port = _DEFAULT_PORTS.get(scheme, "")
    return len(origins) == 1 and bool(host) and host.removesuffix(port) == own.removesuffix(port)
