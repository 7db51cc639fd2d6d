"""Heartbeats: asked for by the client, then sent by the server on its own timer. A beat is never answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ackwise.core.amps.frames import packed
from ackwise.core.amps.headers import Header
from ackwise.core.errors import BadInput

if TYPE_CHECKING:
    from ackwise.dialects.amps.connection import Connection

LEAST, MOST = 0.05, 3600.0
_BEAT = packed(Header(c="heartbeat"))


class Heart:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._every = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def told(self, options: dict[str, str]) -> bool:
        """`start,N`, `stop`, or a beat of the client's own: whether that is something to answer."""
        if "start" not in options and "stop" not in options:
            return False
        numbers = [name for name in options if name not in ("start", "stop")]
        try:
            every = float(numbers[0]) if numbers else 1.0
        except ValueError:
            raise BadInput(f"a heartbeat is started with its seconds, not {numbers[0][:40]!r}") from None
        if "start" in options and not LEAST <= every <= MOST:
            raise BadInput(f"a heartbeat comes every {LEAST:g} to {MOST:g} seconds")
        self.stop()
        self._every = every if "start" in options else 0.0
        return True

    def start(self) -> None:
        """Begin, if that is what was said last."""
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
