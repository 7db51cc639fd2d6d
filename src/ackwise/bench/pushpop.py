"""PushPop benchmark on a temporary server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ackwise.bench.load import Latencies, LoadRow, User, Users
from ackwise.clock import ManualClock
from ackwise.core.errors import AckwiseError
from ackwise.pushpop import PushPop

WARM_UP = 10
CLEANUPS = 1000
LOCKS = 2000
_ITEM = b'{"item":{"user":%d,"n":%d,"text":"thirty characters of any text.."},"priority":1}'
_EMPTY = b'{"items":[]'

THEIRS = {
    "push": "about 3,800/s, mean 10.5 ms",
    "pop": "",
    "pop with ack": "2-5 ms more than a pop",
    "acknowledge": "3-5 ms",
    "pop with ack, expired lock": "5-10 ms more, once",
}
LOCK_BYTES_THEIRS = "200-500 bytes"


class Measured(msgspec.Struct):
    rows: list[LoadRow]
    bytes_per_lock: int


class _Lock(msgspec.Struct):
    lock_id: str


_lock = msgspec.json.Decoder(_Lock).decode


def measure(users: int, iterations: int, *, url: str | None, store: str | None, ramp_up: float) -> Measured:
    """Measure PushPop: pushes, pops, pops under a lock, acknowledgements.

    Each user pushes `iterations` items and pops half of them. It pops the rest under locks and acknowledges the locks.
    """
    if url is not None:
        rows = asyncio.run(_over_http(url, users, iterations, ramp_up))
    else:
        with served(store) as own:
            rows = asyncio.run(_over_http(own, users, iterations, ramp_up))
    with tempfile.TemporaryDirectory(prefix="ackwise-bench-") as folder:
        rows += _cleanups(Path(folder))
        size = _bytes_per_lock(Path(folder))
    return Measured(rows, size)


async def _over_http(url: str, count: int, iterations: int, ramp_up: float) -> list[LoadRow]:
    users = await Users.arrive(url, count, ramp_up)
    try:
        await users.begin(WARM_UP, _push)
        await users.each(WARM_UP // 2, _pop)
        await users.each(WARM_UP // 2, _pop_with_ack)
        by_operation = await users.each(iterations, _push)
        by_operation |= await users.each(iterations - iterations // 2, _pop)
        by_operation |= await users.each(iterations // 2, _pop_with_ack)
    finally:
        users.leave()
    return [latencies.row(operation, THEIRS[operation]) for operation, latencies in by_operation.items()]


async def _push(user: User) -> None:
    await user.timed("push", user.post("push", _ITEM % (user.number, 1)))


async def _pop(user: User) -> None:
    if (await user.timed("pop", user.post("pop"))).startswith(_EMPTY):
        raise AckwiseError(f"an item of {user.queue} is missing")


async def _pop_with_ack(user: User) -> None:
    popped = await user.timed("pop with ack", user.post("pop?require_ack=true"))
    body = b'{"lock_id":"%b"}' % _lock(popped).lock_id.encode()
    await user.timed("acknowledge", user.post("acknowledge", body))


def _cleanups(folder: Path) -> list[LoadRow]:
    """Measure a pop with ack, without and with an expired lock, in this process and with a manual clock."""
    clock = ManualClock()
    with PushPop("bench", f"sqlite:///{folder.absolute()}/cleanup.db", clock=clock) as queue:
        queue.push_many([{"n": n} for n in range(100)])

        def settled() -> None:
            queue.acknowledge(lock)
            queue.push({"n": 0})

        plain, cleaning = Latencies(), Latencies()
        for _ in range(CLEANUPS):
            lock = _timed(plain, lambda: str(queue.pop_with_ack(ttl_seconds=1)["lock_id"]))
            clock.advance(1)
            lock = _timed(cleaning, lambda: str(queue.pop_with_ack(ttl_seconds=1)["lock_id"]))
            settled()
    return [
        plain.row("pop with ack, in process"),
        cleaning.row("pop with ack, expired lock", THEIRS["pop with ack, expired lock"]),
    ]


def _timed(latencies: Latencies, work: Callable[[], str]) -> str:
    began = time.perf_counter()
    result = work()
    took = time.perf_counter() - began
    latencies.add([took])
    latencies.elapsed += took
    return result


def _bytes_per_lock(folder: Path) -> int:
    """Growth of the database file per lock, with indexes."""
    file = folder / "locks.db"
    url = f"sqlite:///{file.absolute()}"
    with PushPop("bench", url) as queue:
        for _ in range(LOCKS // 1000):
            queue.push_many([{"n": n} for n in range(1000)])
    before = file.stat().st_size
    with PushPop("bench", url) as queue:
        for _ in range(LOCKS):
            queue.pop_with_ack(ttl_seconds=300, allow_competing_consumers=True)
    return round((file.stat().st_size - before) / LOCKS)


PATIENCE = 30.0
_RUN = "from ackwise.cli import main; main()"


@contextmanager
def served(store: str | None) -> Iterator[str]:
    """Start a server and yield its URL. Without `store` it uses a new SQLite file with full durability."""
    with tempfile.TemporaryDirectory(prefix="ackwise-bench-") as folder:
        where = store or f"sqlite:///{Path(folder).absolute()}/bench.db"
        command = [sys.executable, "-c", _RUN, "serve", "--store", where, "--port", "0", "--log-level", "warning"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.startswith("ready "):
                raise AckwiseError("the server for the bench did not start")
            yield line.split()[1]
        finally:
            process.terminate()
            process.wait(PATIENCE)
            process.stdout.close()
