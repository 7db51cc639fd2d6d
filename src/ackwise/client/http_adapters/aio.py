"""aiohttp adapter."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp

from ackwise.client.http_adapters.reply import CONNECT_WITHIN, HEADERS, KEPT_FOR, Broken, Reply, Unsent, reply


class AiohttpAdapter:
    """HTTP adapter on aiohttp: an unlimited pool of keep-alive connections to one server."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_FOR),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=HEADERS,
        )

    async def request(self, method: str, path: str, body: bytes, timeout: float) -> Reply:
        limit = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_WITHIN)
        try:
            async with self._session.request(
                method, self._base + path, data=body or None, timeout=limit, allow_redirects=False
            ) as answer:
                return reply(answer.status, await answer.read(), answer.headers)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, RuntimeError) as problem:
            if isinstance(problem, RuntimeError) and not self._session.closed:
                raise
            raise Unsent(str(problem)) from None
        except TimeoutError:
            raise Broken(f"no answer within {timeout:g} seconds") from None
        except (aiohttp.ClientError, OSError) as problem:
            raise Broken(str(problem) or type(problem).__name__) from None

    async def broadcast(self, path: str, body: bytes, timeout: float) -> None:
        with suppress(Unsent, Broken):
            await self.request("POST", path, body, timeout)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._session.close()
