"""How a request gets to a server and its answer back: all that differs between asyncio and threads."""
