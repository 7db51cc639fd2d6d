"""httpx2 adapter."""

from __future__ import annotations

import time
from contextlib import suppress

import httpx2

from ackwise.client.http_adapters.reply import CONNECT_WITHIN, HEADERS, KEPT_FOR, Broken, Reply, Unsent, reply

_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEPT_FOR)


class HttpxAdapter:
    """HTTP adapter on httpx2: an unlimited pool of keep-alive connections to one server."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._client = httpx2.Client(headers=HEADERS, limits=_LIMITS, trust_env=False)

    def request(self, method: str, path: str, body: bytes, timeout: float) -> Reply:
        limit = httpx2.Timeout(timeout, connect=CONNECT_WITHIN)
        try:
            answer = self._client.request(method, self._base + path, content=body, timeout=limit)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, RuntimeError) as problem:
            if isinstance(problem, RuntimeError) and not self._client.is_closed:
                raise
            raise Unsent(str(problem)) from None
        except httpx2.TimeoutException:
            raise Broken(f"no answer within {timeout:g} seconds") from None
        except httpx2.TransportError as problem:
            raise Broken(str(problem) or type(problem).__name__) from None
        return reply(answer.status_code, answer.content, answer.headers)

    def broadcast(self, path: str, body: bytes, timeout: float) -> None:
        with suppress(Unsent, Broken):
            self.request("POST", path, body, timeout)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self._client.close()
