"""Targets that the server may post to: this machine, and hosts that the operator allows."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from ackwise.core.errors import BadInput
from ackwise.core.validation import is_loopback

LONGEST_URL = 2000


def checked_url(url: object, allowed: Collection[str]) -> str:
    """The URL of a registration. Raises `BadInput` if the server may not post to it."""
    if not isinstance(url, str) or not url:
        raise BadInput("url is required")
    if len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise BadInput("url must be a plain http or https URL")
    if not may_post(url, allowed):
        raise BadInput(
            "url must be http or https on this machine, or on a host that the server allows (--pushpop-sink-host)"
        )
    return url


def host_of(url: str) -> str:
    """Scheme, host and port of a target, for logs and errors. Path and query may contain a secret."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "an invalid URL"
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" if port is None else f"{parts.scheme}://{host}:{port}"


def may_post(url: str, allowed: Collection[str]) -> bool:
    """Whether the URL's host is a loopback name or an allowed host. Asks no DNS, whose answer may change."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        return False
    return is_loopback(host) or host in allowed or f"{host}:{port}" in allowed
