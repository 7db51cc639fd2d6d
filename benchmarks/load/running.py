"""The jobs that count messages: many connections at once, timed from the first request to the last answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any

from benchmarks.load.jobs import Done, Load
from benchmarks.load.peer import Client
from benchmarks.load.queen import Popped, Queen, ack_many, ack_one

EMPTY_PAUSE = 0.001
LEASE = 100
"""At most how many messages a lease has when only acks are measured."""


async def opened(peer: str, address: str) -> Client:
    """Open a connection. Imports the peer here, because not every peer is installed."""
    match peer:
        case "redis":
            from benchmarks.load.streams import Streams

            return await Streams.open(address)
        case "redis-py":
            from benchmarks.load.redis_py import RedisPy

            return await RedisPy.open(address)
        case "nats":
            from benchmarks.load.jetstream import JetStream

            return await JetStream.open(address)
        case "rabbit":
            from benchmarks.load.quorum import Quorum

            return await Quorum.open(address)
        case _:
            return await Queen.open(address)


class Timing:
    """Clock of a job, with the latency of each request."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self._cpu = time.process_time()
        self._started = time.perf_counter()

    def done(self, messages: int) -> Done:
        seconds = time.perf_counter() - self._started
        busy = (time.process_time() - self._cpu) / seconds
        self.took.sort()
        return Done(messages=messages, seconds=seconds, p50=self._share(0.5), p99=self._share(0.99), busy=busy)

    def _share(self, share: float) -> float:
        return 1e3 * self.took[min(len(self.took) - 1, int(share * len(self.took)))] if self.took else 0.0


@asynccontextmanager
async def connections(load: Load, more: int = 0) -> AsyncIterator[list[Any]]:
    clients = [await opened(load.peer, load.address) for _ in range(load.connections + more)]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()


async def push(load: Load) -> Done:
    async with connections(load) as clients:
        await clients[0].make(load.queue)
        prepared = prepare(clients[0], load)
        timing = Timing()
        await all_of([(client.push, prepared) for client in clients], timing)
        return timing.done(load.messages)


def prepare(client: Client, load: Load) -> Iterator[Any]:
    """Encode the requests that all connections share."""
    count = load.messages // load.batch
    return iter([client.prepare(load.queue, number % load.connections, load.batch) for number in range(count)])


async def all_of(workers: Sequence[tuple[Callable[[Any], Awaitable[None]], Iterable[Any]]], timing: Timing) -> None:
    """Run all requests on the workers and time each one."""

    async def run(work: Callable[[Any], Awaitable[None]], supply: Iterable[Any]) -> None:
        for one in supply:
            started = time.perf_counter()
            await work(one)
            timing.took.append(time.perf_counter() - started)

    await asyncio.gather(*[run(work, supply) for work, supply in workers])


async def drain(load: Load) -> Done:
    """Pop until all are acked. An empty pop is repeated, because another connection may hold the rest."""
    async with connections(load) as clients:
        finished: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        left = load.messages
        timing = Timing()

        async def run(client: Client) -> None:
            nonlocal left
            while left > 0:
                started = time.perf_counter()
                count = await client.pop_and_ack(load.queue, load.batch)
                left -= count
                if count:
                    timing.took.append(time.perf_counter() - started)
                elif left > 0:
                    await asyncio.sleep(EMPTY_PAUSE)
            if left == 0 and not finished.done():
                finished.set_result(timing.done(load.messages))

        await asyncio.gather(*[run(client) for client in clients])
        if left < 0:
            raise RuntimeError(f"{-left} messages more were had than there were")
        return finished.result()


async def beside(load: Load, consumers: int) -> Done:
    """Push while consumers of the same queue pop and ack. They stop after the last push."""
    async with connections(load, consumers) as clients:
        prepared = prepare(clients[0], load)
        taken, over = 0, False

        async def consume(client: Client) -> None:
            nonlocal taken
            while not over:
                count = await client.pop_and_ack(load.queue, load.batch)
                taken += count
                if not count:
                    await asyncio.sleep(EMPTY_PAUSE)

        busy = [asyncio.create_task(consume(client)) for client in clients[load.connections :]]
        timing = Timing()
        await all_of([(client.push, prepared) for client in clients[: load.connections]], timing)
        done = timing.done(load.messages)
        over, done.taken = True, taken
        await asyncio.gather(*busy)
        return done


async def acks(load: Load, leased: bool) -> Done:
    """Let each connection ack its own leases, from the first message to the last."""
    async with connections(load) as clients:
        size = min(LEASE, load.messages // load.connections)
        leases = [await lease_of(clients[0], load.queue, number, size) for number in range(load.messages // size)]
        requests = [list(ack_requests(lease, load.batch, leased)) for lease in leases]
        mine = [chain.from_iterable(requests[at :: load.connections]) for at in range(load.connections)]
        timing = Timing()
        await all_of([(acking(client, load.batch), one) for client, one in zip(clients, mine, strict=True)], timing)
        return timing.done(load.messages)


async def lease_of(client: Queen, queue: str, number: int, size: int) -> Popped:
    """Push messages to a new partition and pop them under one lease."""
    await client.push(client.prepare(queue, number, size))
    popped = await client.pop(queue, size)
    if len(popped.messages) != size:
        raise RuntimeError(f"{size} messages were pushed, {len(popped.messages)} popped")
    return popped


def ack_requests(lease: Popped, size: int, leased: bool) -> Iterator[bytes]:
    for at in range(0, len(lease.messages), size):
        part = Popped(lease.messages[at : at + size], lease.leaseId)
        yield ack_one(part, leased) if size == 1 else ack_many(part, leased)


def acking(client: Queen, count: int) -> Callable[[Any], Awaitable[None]]:
    return lambda request: client.ack(request, count)
