"""Virtual users: each has a connection and a queue of its own, and makes one call after the other."""

from __future__ import annotations

import asyncio
import secrets
import time
from array import array
from collections.abc import Awaitable, Callable

from ackwise.bench.http import Http, post
from ackwise.bench.latencies import Latencies
from ackwise.core.errors import AckwiseError

Step = Callable[["User"], Awaitable[None]]


class User:
    """`timed` makes a call and notes how long it took, by the name of the operation."""

    def __init__(self, number: int, run: str, http: Http) -> None:
        self.number, self._http = number, http
        self.queue = f"bench-{run}-{number}"
        self.seconds: dict[str, array[float]] = {}

    async def timed(self, operation: str, request: bytes) -> bytes:
        began = time.perf_counter()
        status, body = await self._http.ask(request)
        took = time.perf_counter() - began
        if status != 200:
            raise AckwiseError(f"{operation} on {self.queue} was answered {status}: {body[:200].decode()}")
        self.seconds.setdefault(operation, array("d")).append(took)
        return body

    def post(self, verb: str, body: bytes = b"") -> bytes:
        return post(f"/queue/{self.queue}/{verb}", body)

    def close(self) -> None:
        self._http.close()


class Users:
    """All of them, on one server."""

    def __init__(self, users: list[User], ramp_up: float) -> None:
        self._users, self._ramp_up = users, ramp_up

    @classmethod
    async def arrive(cls, url: str, count: int, ramp_up: float = 0.0) -> Users:
        """`ramp_up` is how many begin in a second; 0: all at once. Queues of an earlier run are left alone."""
        run = secrets.token_hex(4)
        return cls([User(number, run, await Http.open(url)) for number in range(count)], ramp_up)

    async def begin(self, times: int, step: Step) -> None:
        """One after the other, as they arrive: what is measured is measured when all are there."""
        await self.each(times, step, self._ramp_up)

    async def each(self, times: int, step: Step, ramp_up: float = 0.0) -> dict[str, Latencies]:
        """Everybody does `step` so many times."""

        async def go(user: User) -> None:
            if ramp_up:
                await asyncio.sleep(user.number / ramp_up)
            for _ in range(times):
                await step(user)

        for user in self._users:
            user.seconds.clear()
        began = time.perf_counter()
        await asyncio.gather(*map(go, self._users))
        elapsed = time.perf_counter() - began
        found: dict[str, Latencies] = {}
        for user in self._users:
            for operation, seconds in user.seconds.items():
                found.setdefault(operation, Latencies()).add(seconds)
        for latencies in found.values():
            latencies.elapsed = elapsed
        return found

    def leave(self) -> None:
        for user in self._users:
            user.close()
