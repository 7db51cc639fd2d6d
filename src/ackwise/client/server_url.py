"""Server URLs. Converts the errors of a server to the exceptions that an embedded store raises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ackwise.client.http_adapters.reply import Reply
from ackwise.core import errors
from ackwise.core.answers import Settled

HOW = "use http://host:port"


def is_server(url: object) -> bool:
    """Whether a URL is a server's (http or https) and not a store's."""
    return str(url).startswith(("http://", "https://"))


def base_of(url: str) -> str:
    """The server's URL without a trailing slash. Raises `BadStoreURL` if it is invalid."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as problem:
        raise errors.BadStoreURL(f"{url!r} is not a server's URL: {problem}; {HOW}") from None
    if not parts.hostname or any(c.isspace() or not c.isprintable() for c in url):
        raise errors.BadStoreURL(f"{url!r} names no host; {HOW}")
    if parts.query or parts.fragment or parts.username is not None:
        raise errors.BadStoreURL(f"{url!r}: a server's URL has no user, no query and no fragment; {HOW}")
    return url.rstrip("/")


class _Refusal(msgspec.Struct):
    error: str
    code: str
    details: dict[str, Any] = {}


_read = msgspec.json.Decoder(_Refusal).decode


def _all(kind: type[errors.AckwiseError]) -> Iterator[type[errors.AckwiseError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _all(below)


_BY_CODE = {kind.code: kind for kind in _all(errors.AckwiseError) if kind.__module__ == errors.__name__}


def code_of(reply: Reply) -> str | None:
    """The error code in an answer. None if the answer is not an Ackwise server's."""
    try:
        return _read(reply.body).code
    except msgspec.DecodeError:
        return None


def error_of(reply: Reply, base: str) -> errors.AckwiseError:
    """The exception for an error answer: the same that an embedded store raises."""
    try:
        refusal = _read(reply.body)
    except msgspec.DecodeError:
        text = reply.body[:200].decode("utf-8", "replace")
        kind = errors.StoreUnavailable if reply.status in (429, 502, 503, 504) else errors.StoreError
        return kind(f"{base} answered {reply.status} and not as an Ackwise server does: {text}")
    other = errors.BadInput if reply.status < 500 else errors.StoreError
    problem = _BY_CODE.get(refusal.code, other)(refusal.error)
    problem.details = refusal.details
    if "settled" in problem.details:
        problem.details["settled"] = msgspec.convert(problem.details["settled"], list[Settled])
    return problem
