"""Many long polls that wait: what they cost while nothing happens, and how soon a push reaches one of them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import msgspec

from ackwise.bench.http_client import Http, get, post
from benchmarks.load.jobs import Done, Idle
from benchmarks.load.queen import Got, Popped, ack_one
from benchmarks.process import cpu_seconds

POLL_SECONDS = 60
PATIENCE = 10.0
"""Seconds after which an undelivered push counts as lost."""
MAKERS = 8
AT_ONCE = 200
"""Connections opened at the same time, so that the server's backlog holds."""


class Numbered(Got):
    data: int


class Woken(msgspec.Struct):
    messages: list[Numbered]
    leaseId: str


class Parked:
    """Parked waiters, and for each push its waiter, queue and time."""

    def __init__(self, job: Idle) -> None:
        self._job = job
        self._decoder = msgspec.json.Decoder(Woken)
        self._tasks: list[asyncio.Task[None]] = []
        self._reached: dict[int, asyncio.Future[float]] = {}
        self.had: Counter[tuple[int, str]] = Counter()

    async def park(self) -> None:
        """Open the connections in groups and start a long poll on each."""
        for at in range(0, self._job.waiters, AT_ONCE):
            numbers = range(at, min(at + AT_ONCE, self._job.waiters))
            opened = await asyncio.gather(*[Http.open(self._job.address) for _ in numbers])
            self._tasks += [
                asyncio.create_task(self._wait(http, name_of(number % self._job.queues)))
                for http, number in zip(opened, numbers, strict=True)
            ]

    async def push(self, http: Http, number: int, queue: str) -> float:
        """Push one message. Returns the seconds until a waiter has it."""
        self._reached[number] = asyncio.get_running_loop().create_future()
        partition = f"p{random.randrange(self._job.partitions // self._job.queues)}"
        item = {"queue": queue, "partition": partition, "payload": number, "transactionId": f"wake-{number}"}
        request = post("/api/v1/push", msgspec.json.encode({"items": [item]}))
        started = time.perf_counter()
        status, body = await http.ask(request)
        if status != 201:
            raise RuntimeError(f"push answered {status} {body[:200]!r}")
        return await asyncio.wait_for(self._reached[number], PATIENCE) - started

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait(self, http: Http, queue: str) -> None:
        poll = get(f"/api/v1/pop/queue/{queue}?batch=1&wait=true&timeout={POLL_SECONDS * 1000}")
        try:
            while True:
                status, body = await http.ask(poll)
                if status == 200:
                    now, woken = time.perf_counter(), self._decoder.decode(body)
                    self._note(woken, queue, now)
                    first = Popped([Got(one.transactionId, one.partitionId) for one in woken.messages], woken.leaseId)
                    await http.ask(ack_one(first))
                elif status != 204:
                    raise RuntimeError(f"pop answered {status} {body[:200]!r}")
        finally:
            http.close()

    def _note(self, woken: Woken, queue: str, now: float) -> None:
        for one in woken.messages:
            self.had[one.data, queue] += 1
            reached = self._reached[one.data]
            if not reached.done():
                reached.set_result(now)


def name_of(number: int) -> str:
    return f"idle-{number}"


async def idle(job: Idle) -> Done:
    await make_partitions(job)
    parked = Parked(job)
    started = time.perf_counter()
    try:
        await parked.park()
        await settled(job.pid)
        used, since = cpu_seconds(job.pid), time.perf_counter()
        await asyncio.sleep(job.seconds)
        idle_cpu = (cpu_seconds(job.pid) - used) / (time.perf_counter() - since)
        wanted, took = await push_one_by_one(job, parked)
    finally:
        await parked.end()
    # A second waiter that got the same, or one of another queue, is in `had` and not in `wanted`.
    wrong = sum(((parked.had - wanted) + (wanted - parked.had)).values())
    took.sort()
    return Done(
        messages=job.pushes,
        seconds=time.perf_counter() - started,
        p50=1e3 * took[len(took) // 2],
        p99=1e3 * took[int(len(took) * 0.99)],
        idle_cpu=idle_cpu,
        wrong=wrong,
    )


async def push_one_by_one(job: Idle, parked: Parked) -> tuple[Counter[tuple[int, str]], list[float]]:
    """Push one by one. Returns the expected queue and the seconds of each push."""
    http = await Http.open(job.address)
    wanted: Counter[tuple[int, str]] = Counter()
    took = []
    for number in range(job.pushes):
        queue = name_of(random.randrange(job.queues))
        wanted[number, queue] = 1
        try:
            took.append(await parked.push(http, number, queue))
        except TimeoutError:
            took.append(PATIENCE)
    http.close()
    # Leave time for a wrong waiter to get the message.
    await asyncio.sleep(0.5)
    return wanted, took


async def make_partitions(job: Idle) -> None:
    """Create empty partitions: push one message to each and consume it."""
    numbers = iter(range(job.queues))

    async def run() -> None:
        http = await Http.open(job.address)
        for number in numbers:
            await make_queue(http, name_of(number), job.partitions // job.queues)
        http.close()

    await asyncio.gather(*[run() for _ in range(MAKERS)])


async def make_queue(http: Http, queue: str, partitions: int) -> None:
    items = [{"queue": queue, "partition": f"p{number}", "payload": 0} for number in range(partitions)]
    await http.ask(post("/api/v1/push", msgspec.json.encode({"items": items})))
    pop = get(f"/api/v1/pop/queue/{queue}?batch={partitions}&partitions={partitions}&autoAck=true")
    left = partitions
    while left:
        status, body = await http.ask(pop)
        if status != 200:
            raise RuntimeError(f"pop answered {status} {body[:200]!r} with {left} messages left")
        left -= len(msgspec.json.decode(body, type=Popped).messages)


async def settled(pid: int) -> None:
    """Wait until the server has parked all waiters: it then uses less than a tenth of a core."""
    for _ in range(40):
        used = cpu_seconds(pid)
        await asyncio.sleep(0.5)
        if cpu_seconds(pid) - used < 0.05:
            return
