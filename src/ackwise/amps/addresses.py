"""Where a server is: `tcp://host:port/amps/json`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from ackwise.core.errors import BadInput

PORT = 9007


class Address(NamedTuple):
    host: str
    port: int
    user: str = ""
    password: str = ""

    def __str__(self) -> str:
        """Without the password."""
        return f"tcp://{self.host}:{self.port}/amps/json"


def addresses(given: str | Iterable[str]) -> list[Address]:
    """One or several, in the order in which they are tried."""
    found = [_address(one) for one in ([given] if isinstance(given, str) else given)]
    if not found:
        raise BadInput("connect needs at least one uri, such as tcp://127.0.0.1:9007/amps/json")
    return found


def _address(uri: str) -> Address:
    try:
        parts = urlsplit(uri)
        port = parts.port or PORT
    except (ValueError, AttributeError):
        raise BadInput(f"{uri!r:.200} is not a uri; write it like tcp://127.0.0.1:9007/amps/json") from None
    if parts.scheme != "tcp" or not parts.hostname or parts.path.strip("/") not in ("", "amps/json", "amps"):
        raise BadInput(f"{uri!r:.200} is not a uri of ours; write it like tcp://127.0.0.1:9007/amps/json")
    return Address(parts.hostname, port, unquote(parts.username or ""), unquote(parts.password or ""))
