"""How bytes get to a server and back: all that differs between asyncio and threads."""

CONNECT_WITHIN = 10.0
CHUNK = 256 << 10
