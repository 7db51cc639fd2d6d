"""HTTP adapters: send one request with aiohttp (asyncio) or httpx2 (threads)."""

from ackwise.client.http_adapters.reply import AsyncHTTPAdapter, HTTPAdapter
from ackwise.core.extras import needed

__all__ = ["open_adapter", "open_async_adapter"]


def open_adapter(base: str) -> HTTPAdapter:
    """An adapter for threads to the server at `base`. A program that opens a store loads no HTTP client."""
    with needed("client", "a connection to a server"):
        from ackwise.client.http_adapters.threads import HttpxAdapter
    return HttpxAdapter(base)


def open_async_adapter(base: str) -> AsyncHTTPAdapter:
    """An adapter for asyncio to the server at `base`."""
    with needed("client", "a connection to a server"):
        from ackwise.client.http_adapters.aio import AiohttpAdapter
    return AiohttpAdapter(base)
