"""Heartbeats that the server sends at the interval that the client requests. A client does not answer them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ackwise.core.errors import BadInput
from ackwise.wire.amps import Header, packed

if TYPE_CHECKING:
    from ackwise.protocols.amps.connection import AmpsConnection

LEAST, MOST = 0.05, 3600.0
_BEAT = packed(Header(c="heartbeat"))


class Heartbeat:
    """Timer of a connection's heartbeats."""

    def __init__(self, connection: AmpsConnection) -> None:
        self._connection = connection
        self._every = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def configure(self, options: dict[str, str]) -> bool:
        """Applies `start,N` or `stop`. Returns False for a heartbeat of the client, which needs no answer."""
        if "start" not in options and "stop" not in options:
            return False
        numbers = [name for name in options if name not in ("start", "stop")]
        try:
            every = float(numbers[0]) if numbers else 1.0
        except ValueError:
            raise BadInput(f"the heartbeat interval must be a number of seconds, not {numbers[0][:40]!r}") from None
        if "start" in options and not LEAST <= every <= MOST:
            raise BadInput(f"the heartbeat interval must be {LEAST:g} to {MOST:g} seconds, not {every:g}")
        self.stop()
        self._every = every if "start" in options else 0.0
        return True

    def start(self) -> None:
        """Starts the timer, unless the client's last request was `stop`."""
        if self._every:
            self._timer = asyncio.get_running_loop().call_later(self._every, self._beat)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        if self._connection.closing:
            return
        if self._connection.writable:
            self._connection.write(_BEAT)
        self.start()
