"""Store URLs, their options, password masking."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

import msgspec

from ackwise.core.errors import BadStoreURL

Durability = Literal["full", "normal"]
_ACKWISE_OPTIONS = ("durability", "busy_timeout", "shards")
_SECRET = re.compile(
    r"(?<=://)(?P<user>[^/@:\s]*):[^/\s]*(?=@)"
    r"|(?<=nats://)[^/@:\s]+(?=@)|(?<=tls://)[^/@:\s]+(?=@)"
    r"|(?<=password=)(?:'(?:[^'\\]|\\.)*'|[^&\s]*)"
    r"|(?<=[?&]token=)[^&\s]*|(?<=\bBearer )\S+",
    re.IGNORECASE,
)


class StoreURL(msgspec.Struct, frozen=True):
    """A parsed store URL. `target` is the file's path, or the database's URL without Ackwise's options."""

    scheme: Literal["sqlite", "postgresql"]
    target: str
    durability: Durability = "full"
    busy_timeout: float = 10.0
    shards: int = 4


def parse(url: str) -> StoreURL:
    if "://" not in str(url):
        raise BadStoreURL(f"{url!r} is not a store URL; use sqlite:///path/to/file.db or postgresql://host/database")
    try:
        parts = urlsplit(url)
    except ValueError as problem:
        raise BadStoreURL(f"{url!r} is not a store URL: {problem}") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {key: options.pop(key) for key in _ACKWISE_OPTIONS if key in options}
    match parts.scheme:
        case "sqlite":
            if parts.netloc or not parts.path.strip("/"):
                raise BadStoreURL(f"{url!r}: a SQLite URL has three slashes and a path, such as sqlite:///queue.db")
            if options:
                raise BadStoreURL(f"{url!r}: unknown option {sorted(options)[0]!r}; known: durability, busy_timeout")
            path = unquote(parts.path[1:])
            if "\0" in path:
                raise BadStoreURL(f"{url!r}: a path has no NUL in it")
            return _with_options(url, "sqlite", path, ours)
        case "postgresql" | "postgres":
            query = "&".join(p for p in parts.query.split("&") if p.split("=")[0] not in _ACKWISE_OPTIONS)
            target = urlunsplit(("postgresql", parts.netloc, parts.path, query, ""))
            return _with_options(url, "postgresql", target, ours)
        case other:
            raise BadStoreURL(
                f"{url!r}: unknown scheme {other!r}; use sqlite:///path/to/file.db or postgresql://host/database"
            )


def _with_options(url: str, scheme: Literal["sqlite", "postgresql"], target: str, ours: dict[str, str]) -> StoreURL:
    durability = ours.get("durability", "full")
    if durability not in ("full", "normal"):
        raise BadStoreURL(f"{url!r}: durability is full or normal, not {durability!r}")
    try:
        wait, shards = float(ours.get("busy_timeout", "10")), int(ours.get("shards", "4"))
    except ValueError:
        raise BadStoreURL(f"{url!r}: busy_timeout and shards are numbers") from None
    if not 0 <= wait <= 3600 or not 1 <= shards <= 64:
        raise BadStoreURL(f"{url!r}: busy_timeout is 0 to 3600 seconds, shards 1 to 64")
    return StoreURL(scheme, target, "normal" if durability == "normal" else "full", wait, shards)


def without_password(text: str) -> str:
    """A text with its passwords and bearer tokens masked. In a NATS URL the user part may be a token."""
    return _SECRET.sub(lambda match: "***" if match["user"] is None else f"{match['user']}:***", text)
