"""TCP listener for AMPS clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from ackwise.broker import AsyncBroker
from ackwise.protocols.amps import AmpsService
from ackwise.protocols.answer_memory import AnswerMemory
from ackwise.protocols.http_request import IncomingBytes
from ackwise.protocols.peers import Peers
from ackwise.server.ports import BACKLOG

if TYPE_CHECKING:
    from ackwise.server.settings import Settings


class AmpsListener:
    """Accepts AMPS connections until `stop`."""

    def __init__(self, service: AmpsService, server: asyncio.Server, peers: Peers) -> None:
        self._service, self._server, self._peers = service, server, peers
        self.host, self.port = server.sockets[0].getsockname()[:2]

    @classmethod
    async def start(
        cls, broker: AsyncBroker, settings: Settings, memory: AnswerMemory, sock: socket.socket
    ) -> AmpsListener:
        peers = Peers(settings.max_connections, settings.peer_share)
        service = AmpsService(
            broker,
            queues=settings.amps_queues,
            max_backlog=settings.amps_max_backlog,
            default_backlog=settings.amps_default_backlog,
            max_frame=settings.amps_max_frame,
            peers=peers,
            memory=memory,
            incoming=IncomingBytes(share=settings.peer_share, each=settings.amps_max_frame),
        )
        return cls(service, await broker.loop.create_server(service.protocol, sock=sock, backlog=BACKLOG), peers)

    @property
    def connections(self) -> int:
        return self._peers.connections

    async def stop(self, grace: float, hurry: Callable[[], bool]) -> None:
        """Refuses new connections, waits for clients to settle, releases the rest and disconnects."""
        self._server.close()
        await self._service.drain(grace, hurry)
