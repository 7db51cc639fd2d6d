"""Request gate: refuses foreign Hosts, foreign Origins and malformed heads before a route sees the request.

Browsers send `Origin` and `Sec-Fetch-*` on behalf of the requesting page. A page cannot change these headers. A request
without them comes from a program, and the gate lets programs pass.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.validation import is_ip_literal
from ackwise.protocols.http_request import TARGET, BadHead, Scope
from ackwise.protocols.http_response import ForbiddenHost, ForbiddenOrigin, Headers

log = logging.getLogger("ackwise.server")

OPEN_PATHS = frozenset({"/health", "/livez", "/readyz", "/metrics", "/metrics/prometheus"})
"""Health and metrics accept any Host and any Origin: they change nothing and show no message."""
MOST_REMEMBERED = 1000
"""Distinct header values whose verdict the gate remembers, and whose refusal it logs once."""
_HEADERS = frozenset({b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"})
_SAME_SITE = frozenset({b"none", b"same-origin"})
_VERSIONS = frozenset({"1.0", "1.1"})
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>\d{1,5}))?", re.IGNORECASE)
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<host>[^/?#@\s]+)", re.IGNORECASE)
_ABSOLUTE = re.compile(r"(?P<scheme>https?)://(?P<host>[^/?#]*)", re.IGNORECASE)
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_ANY = "*"
_LONGEST = 300
"""Bytes of a Host or Origin. A longer value is refused and not remembered."""


def check_origins(origins: Iterable[str], *, insecure: bool) -> tuple[str, ...]:
    """The values of `--cors`, checked and spelled as browsers spell them."""
    checked = []
    for origin in origins:
        if origin == _ANY:
            if not insecure:
                raise BadInput("--cors '*' lets every web page use the API; add --insecure if you want that")
        elif not (match := _ORIGIN.fullmatch(origin)) or not _HOST.fullmatch(match["host"]):
            raise BadInput(f"--cors {origin!r} is not an origin; write it like https://app.example.org")
        checked.append(_spelled(origin.lower()))
    return tuple(checked)


def _spelled(origin: str) -> str:
    """An origin as browsers spell it: without the port that its scheme implies."""
    for scheme, port in _DEFAULT_PORTS.items():
        if origin.startswith(f"{scheme}://"):
            return origin.removesuffix(f":{port}")
    return origin


def check_host_names(names: Iterable[str], *, insecure: bool) -> tuple[str, ...]:
    """The values of `--allowed-host`: names without a port, `*.example.org`, or `*`."""
    checked = []
    for name in names:
        if name == _ANY:
            if not insecure:
                raise BadInput("--allowed-host '*' accepts every Host; add --insecure if you want that")
        elif not re.fullmatch(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?", name, re.IGNORECASE):
            raise BadInput(
                f"--allowed-host {name!r} is not a host name; write it like queue.example.org, without a port"
            )
        checked.append(name.lower().rstrip("."))
    return tuple(checked)


class Gate:
    """Decides from a request's head whether the server may answer the request."""

    def __init__(self, *, origins: Iterable[str] = (), host_names: Iterable[str] = ()) -> None:
        self.origins = frozenset(origins)
        """Origins that `--cors` names. Without any, answers have no CORS headers."""
        self._any_origin = _ANY in self.origins
        names = frozenset(host_names)
        self._any_host = _ANY in names
        self._names = frozenset(name for name in names if not name.startswith("*."))
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._accepted: set[bytes] = set()
        self._logged: set[object] = set()

    def refusal(self, scope: Scope) -> AckwiseError | None:
        """The error that refuses this request, or None.

        A page may still answer a `ForbiddenOrigin` of `is_navigation`.
        """
        if scope.get("http_version", "1.1") not in _VERSIONS:
            return BadHead("this server speaks HTTP/1.1 and HTTP/1.0")
        try:
            host, origin, site = _read_headers(scope["headers"])
        except BadHead as problem:
            return problem
        if TARGET in scope and not _names_host(scope[TARGET], host):
            return BadHead("the request target names another host than the Host header")
        if scope["path"] in OPEN_PATHS:
            return None
        if not host:
            return BadHead("the request has no Host header")
        if host not in self._accepted and not self._accepts_host(host):
            return self._log_once(ForbiddenHost(f"host {_shown(host)} is not allowed{_host_advice(host)}"), host)
        if site is None and origin is None:
            return None
        if origin is not None and self.allows(origin):
            return None
        if origin is not None and not _same_origin(origin, host):
            return self._log_once(
                ForbiddenOrigin(f"origin {_shown(origin)} is not allowed{_origin_advice(origin)}"), origin
            )
        if site is not None and site not in _SAME_SITE:
            return ForbiddenOrigin("a web page of another origin sent this request; --cors ORIGIN lets its scripts in")
        return None

    def allows(self, origin: bytes) -> bool:
        """Whether `--cors` names this origin."""
        return self._any_origin or origin.decode("latin-1").lower() in self.origins

    def cors_headers(self, scope: Scope) -> Headers:
        """The headers that let the requesting page's scripts read the answer."""
        if not self.origins:
            return ()
        origin = next((value for name, value in scope["headers"] if name == b"origin"), None)
        if origin is None or not self.allows(origin):
            return _VARY
        return ((b"access-control-allow-origin", b"*" if self._any_origin else origin), *_CORS)

    def _accepts_host(self, host: bytes) -> bool:
        match = _HOST.fullmatch(host.decode("latin-1")) if len(host) <= _LONGEST else None
        if match is None:
            return False
        name = match["name"].lower().rstrip(".")
        accepted = (
            self._any_host
            or is_ip_literal(name)
            or name == "localhost"
            or name in self._names
            or name.endswith((".localhost", *self._suffixes))
        )
        if accepted and len(self._accepted) < MOST_REMEMBERED:
            self._accepted.add(host)
        return accepted

    def _log_once(self, problem: AckwiseError, value: bytes) -> AckwiseError:
        """Logs a refused value the first time and returns the error."""
        if (shown := value[:_LONGEST]) not in self._logged and len(self._logged) < MOST_REMEMBERED:
            self._logged.add(shown)
            log.warning("refused a request: %s", problem.message)
        return problem


_VARY = ((b"vary", b"Origin"),)
_CORS = (
    *_VARY,
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE, OPTIONS"),
    (b"access-control-allow-headers", b"Content-Type, Authorization, Accept, If-Match, X-Client-Id"),
    (b"access-control-expose-headers", b"ETag, Location, Retry-After, X-Ackwise-Now, X-Ackwise-Clock"),
    (b"access-control-max-age", b"600"),
)


def _read_headers(headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes | None, bytes | None, bytes | None]:
    """(Host, Origin, Sec-Fetch-Site). A repeated Origin or Sec-Fetch-Site counts as foreign."""
    host = origin = site = None
    for name, value in headers:
        if name not in _HEADERS:
            continue
        if name == b"host":
            if host is not None:
                raise BadHead("the request has two Host headers")
            host = value
        elif name == b"origin":
            origin = _single(origin, value, b"null")
        elif name == b"sec-fetch-site":
            site = _single(site, value, b"cross-site")
    return host, origin, site


def _single(previous: bytes | None, value: bytes, repeated: bytes) -> bytes:
    return value if previous is None else repeated


def is_navigation(scope: Scope) -> bool:
    """Whether a browser follows a link. A page may answer such a request even if another site has the link.

    A browser that follows a link sends no Origin, so a foreign Origin is refused here, too.
    """
    headers = dict(scope["headers"])
    if scope.get("method") != "GET" or b"origin" in headers:
        return False
    mode, dest = headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")
    return (mode, dest) == (b"navigate", b"document")


def _same_origin(origin: bytes, host: bytes) -> bool:
    """Whether an Origin names the Host. Only the default port depends on the scheme: a proxy may terminate TLS."""
    match = _ORIGIN.fullmatch(origin.decode("latin-1"))
    return match is not None and _authority(match["host"], match["scheme"]) == _authority(
        host.decode("latin-1"), match["scheme"]
    )


def _names_host(target: bytes, host: bytes | None) -> bool:
    """Whether a target like `http://host/path` names the Host."""
    match = _ABSOLUTE.match(target.decode("latin-1"))
    if match is None or host is None:
        return False
    named = _authority(match["host"], match["scheme"])
    return named is not None and named == _authority(host.decode("latin-1"), match["scheme"])


def _authority(text: str, scheme: str) -> tuple[str, str] | None:
    match = _HOST.fullmatch(text)
    return match and (match["name"].lower().rstrip("."), match["port"] or _DEFAULT_PORTS[scheme.lower()])


def _shown(value: bytes) -> str:
    """A header's value as an error may repeat it."""
    return "".join(char if char.isprintable() else "?" for char in value.decode("latin-1")[:100])


def _host_advice(host: bytes) -> str:
    """Advice for the operator. Empty if no flag can name this host."""
    match = _HOST.fullmatch(host.decode("latin-1")) if len(host) <= _LONGEST else None
    if match is None or match["name"].startswith("["):
        return ""
    return f"; start the server with --allowed-host {match['name']}"


def _origin_advice(origin: bytes) -> str:
    """Advice for the operator. Empty if no flag can name this origin."""
    match = _ORIGIN.fullmatch(origin.decode("latin-1")) if len(origin) <= _LONGEST else None
    return f"; start the server with --cors {_shown(origin)}" if match is not None else ""
