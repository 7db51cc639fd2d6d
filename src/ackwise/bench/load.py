"""Virtual users of a benchmark and their latencies."""

from __future__ import annotations

import asyncio
import secrets
import time
from array import array
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from ackwise.bench.http_client import Http, post
from ackwise.core.errors import AckwiseError

Step = Callable[["User"], Awaitable[None]]


class User:
    """Virtual user with a connection and a queue of its own."""

    def __init__(self, number: int, run: str, http: Http) -> None:
        self.number, self._http = number, http
        self.queue = f"bench-{run}-{number}"
        self.seconds: dict[str, array[float]] = {}

    async def timed(self, operation: str, request: bytes) -> bytes:
        """Send a request and record its latency under the name of the operation."""
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
    """All virtual users of a run, on one server."""

    def __init__(self, users: list[User], ramp_up: float) -> None:
        self._users, self._ramp_up = users, ramp_up

    @classmethod
    async def arrive(cls, url: str, count: int, ramp_up: float = 0.0) -> Users:
        """Connect `count` users. `ramp_up` is the number of new users per second. 0 starts all at once."""
        run = secrets.token_hex(4)
        return cls([User(number, run, await Http.open(url)) for number in range(count)], ramp_up)

    async def begin(self, times: int, step: Step) -> None:
        """Warm up: start the users one after the other. Call `each` afterwards to measure with all users."""
        await self.each(times, step, self._ramp_up)

    async def each(self, times: int, step: Step, ramp_up: float = 0.0) -> dict[str, Latencies]:
        """Run `step` `times` times for each user, all users at once."""

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
        by_operation: dict[str, Latencies] = {}
        for user in self._users:
            for operation, seconds in user.seconds.items():
                by_operation.setdefault(operation, Latencies()).add(seconds)
        for latencies in by_operation.values():
            latencies.elapsed = elapsed
        return by_operation

    def leave(self) -> None:
        for user in self._users:
            user.close()


class LoadRow(msgspec.Struct):
    """Result of one operation. Times are in milliseconds."""

    operation: str
    count: int
    per_second: float
    mean: float
    p50: float
    p95: float
    p99: float
    most: float
    theirs: str = ""
    """Published number of the PushPop project."""


class Latencies:
    """Latencies of an operation in seconds, and the elapsed time of all callers."""

    def __init__(self) -> None:
        self._seconds = array("d")
        self.elapsed = 0.0

    def add(self, seconds: Iterable[float]) -> None:
        self._seconds.extend(seconds)

    def row(self, operation: str, theirs: str = "") -> LoadRow:
        durations = sorted(self._seconds)
        count = len(durations)

        def at(share: float) -> float:
            return round(1000 * durations[min(count - 1, int(share * count))], 2)

        mean = round(1000 * sum(durations) / count, 2)
        rate = round(count / self.elapsed, 1)
        return LoadRow(operation, count, rate, mean, at(0.5), at(0.95), at(0.99), at(1.0), theirs)
