"""The socket on which AMPS clients are served."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from ackwise.broker import AsyncBroker
from ackwise.dialects.amps import AmpsFace
from ackwise.dialects.handover import AnswerMemory
from ackwise.dialects.peers import Peers

if TYPE_CHECKING:
    from ackwise.server.serving import Settings


class AmpsListener:
    """Takes connections until it is stopped."""

    def __init__(self, face: AmpsFace, server: asyncio.Server) -> None:
        self._face, self._server = face, server
        self.host, self.port = server.sockets[0].getsockname()[:2]

    @classmethod
    async def start(
        cls, broker: AsyncBroker, settings: Settings, memory: AnswerMemory, sock: socket.socket
    ) -> AmpsListener:
        face = AmpsFace(
            broker,
            queues=settings.amps_queues,
            max_backlog=settings.amps_max_backlog,
            max_frame=settings.amps_max_frame,
            peers=Peers(settings.max_connections, settings.peer_share),
            memory=memory,
        )
        return cls(face, await broker.loop.create_server(face.protocol, sock=sock, backlog=4096))

    async def stop(self, grace: float, hurry: Callable[[], bool]) -> None:
        """Take nobody else, let holders finish, give the rest back and hang up."""
        self._server.close()
        await self._face.drain(grace, hurry)
