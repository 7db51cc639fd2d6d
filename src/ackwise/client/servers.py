"""A server's URL, and what its refusals become."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ackwise.client.wires.reply import Reply
from ackwise.core import errors
from ackwise.core.answers import Settled

HOW = "use http://host:port"


def is_server(url: object) -> bool:
    return str(url).startswith(("http://", "https://"))


def base_of(url: str) -> str:
    """The URL without a slash at its end; one that names no server, or more than one, is refused."""
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
    """The code of a refusal; None when it is not one of ours."""
    try:
        return _read(reply.body).code
    except msgspec.DecodeError:
        return None


def error_of(reply: Reply, base: str) -> errors.AckwiseError:
    """The same error that an embedded store would raise."""
    try:
        refusal = _read(reply.body)
    except msgspec.DecodeError:
        told = reply.body[:200].decode("utf-8", "replace")
        kind = errors.StoreUnavailable if reply.status in (429, 502, 503, 504) else errors.StoreError
        return kind(f"{base} answered {reply.status} and not as an Ackwise server does: {told}")
    other = errors.BadInput if reply.status < 500 else errors.StoreError
    problem = _BY_CODE.get(refusal.code, other)(refusal.error)
    problem.details = refusal.details
    if "settled" in problem.details:
        problem.details["settled"] = msgspec.convert(problem.details["settled"], list[Settled])
    return problem
