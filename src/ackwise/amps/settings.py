"""Addresses and auto-ack settings. The settings stay after a reconnect."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from ackwise.core import validation
from ackwise.core.errors import BadInput
from ackwise.core.validation import Seconds

Self = TypeVar("Self", bound="AckSettings")


class AckSettings:
    """Auto-ack settings, with setters that can be chained."""

    def __init__(self) -> None:
        self._auto_ack = False
        self._ack_batch_size = 1
        self._ack_timeout = 1.0

    @property
    def auto_ack(self) -> bool:
        """Whether the client acks a message when its handler returns. Off by default."""
        return self._auto_ack

    @property
    def ack_batch_size(self) -> int:
        """How many acks of one topic and subscription form a batch. The default is 1."""
        return self._ack_batch_size

    @property
    def ack_timeout(self) -> float:
        """Seconds after which an incomplete batch is sent. The default is 1. 0 if the timer is off."""
        return self._ack_timeout

    def set_auto_ack(self: Self, on: bool) -> Self:
        """Turn auto-ack on or off."""
        self._auto_ack = bool(on)
        self._changed()
        return self

    def set_ack_batch_size(self: Self, size: int) -> Self:
        """Send acks in batches of `size`. 0 means 1."""
        self._ack_batch_size = max(1, validation.count(size, "ack_batch_size", least=0))
        self._changed()
        return self

    def set_ack_timeout(self: Self, seconds: Seconds) -> Self:
        """Send an incomplete batch after this many seconds. 0 or less turns the timer off."""
        value: object = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            raise BadInput("ack_timeout must be a number of seconds or a timedelta")
        if value > validation.MAX_DELAY_SECONDS:
            raise BadInput(f"ack_timeout is at most {validation.MAX_DELAY_SECONDS:.0f} seconds; 0 turns the timer off")
        self._ack_timeout = max(0.0, float(value))
        self._changed()
        return self

    def _changed(self) -> None:
        """Called after a setting changed. Subclasses override it."""


PORT = 9007


class Address(NamedTuple):
    """Address of an AMPS server. Its text form leaves the password out."""

    host: str
    port: int
    user: str = ""
    password: str = ""

    def __str__(self) -> str:
        return f"tcp://{self.host}:{self.port}/amps/json"


def addresses(uris: str | Iterable[str]) -> list[Address]:
    """Parse one URI or several, in the order in which the client tries them."""
    parsed = [_address(uri) for uri in ([uris] if isinstance(uris, str) else uris)]
    if not parsed:
        raise BadInput("connect needs at least one uri, such as tcp://127.0.0.1:9007/amps/json")
    return parsed


def _address(uri: str) -> Address:
    try:
        parts = urlsplit(uri)
        port = parts.port or PORT
    except (ValueError, AttributeError):
        raise BadInput(f"{uri!r:.200} is not a uri; write it like tcp://127.0.0.1:9007/amps/json") from None
    if parts.scheme != "tcp" or not parts.hostname or parts.path.strip("/") not in ("", "amps/json", "amps"):
        raise BadInput(f"{uri!r:.200} is not an AMPS uri; write it like tcp://127.0.0.1:9007/amps/json")
    return Address(parts.hostname, port, unquote(parts.username or ""), unquote(parts.password or ""))
