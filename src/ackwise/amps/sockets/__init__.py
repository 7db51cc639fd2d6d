"""TCP sockets with one interface for asyncio and for threads."""

CONNECT_SECONDS = 10.0
CHUNK = 256 << 10
