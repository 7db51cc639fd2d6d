"""TCP socket on asyncio."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from ackwise.amps.sockets import CHUNK, CONNECT_SECONDS
from ackwise.wire import amps


class AsyncTCPSocket:
    """TCP connection on asyncio. All its errors are `OSError`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, host: str, port: int) -> AsyncTCPSocket:
        opening = asyncio.open_connection(host, port, limit=CHUNK)
        reader, writer = await asyncio.wait_for(opening, CONNECT_SECONDS)
        amps.keep_alive(writer.get_extra_info("socket"), socket)
        return cls(reader, writer)

    async def read(self) -> bytes:
        """Read available bytes. Returns b"" at the end of the stream."""
        return await self._reader.read(CHUNK)

    async def send(self, data: bytes) -> None:
        if self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
