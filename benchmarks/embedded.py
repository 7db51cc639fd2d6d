"""Push and claim+ack on the embedded store, against the ceiling and against Redis."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import ackwise
from ackwise import Connection
from benchmarks import redis_peer
from benchmarks.ceiling import Ceiling
from benchmarks.report import Report
from benchmarks.timing import rates

PAYLOAD = b'"' + b"x" * 188 + b'"'
TEXT = "x" * 188
BATCHES = {1: 400, 10: 300, 100: 200, 1000: 40}
ROUNDS = 5


def push(connection: Connection, queue: str, batch: int, batches: int) -> int:
    payloads = [TEXT] * batch
    for _ in range(batches):
        connection.push_many(queue, payloads)
    return batch * batches


def claim_and_ack(
    connection: Connection, queue: str, batch: int, batches: int, prefetch: int, *, read: bool = False
) -> int:
    """Claim batch after batch and ack each. `read` also reads every payload."""
    done = 0
    for number, claimed in enumerate(connection.batches(queue, max=batch, prefetch=prefetch, stop_when_empty=True), 1):
        done += len(claimed)
        if read and not all(len(delivery.payload) == len(PAYLOAD) for delivery in claimed):
            raise RuntimeError("a payload came back changed")
        if number == batches:
            claimed.ack()
            break
    return done


def batches_of_all_sizes(report: Report, folder: Path) -> None:
    """The main table: every batch size, one caller, full durability."""
    ceiling = Ceiling(folder / "ceiling.db")
    with ackwise.connect(f"sqlite:///{folder}/embedded.db") as connection, redis_peer.redis_server(folder) as redis:
        for size in BATCHES.items():
            _one_size(report, connection, ceiling, redis, size)
    ceiling.close()


def _one_size(report: Report, connection: Connection, ceiling: Ceiling, redis: Any, size: tuple[int, int]) -> None:
    batch, batches = size
    name = f"bench-{batch}"
    prefetch = {1: 64, 10: 16, 100: 8, 1000: 2}[batch]
    jobs = [
        lambda: push(connection, name, batch, batches),
        lambda: ceiling.push(PAYLOAD, batch, batches),
        lambda: claim_and_ack(connection, name, batch, batches // 3, 1),
        lambda: claim_and_ack(connection, name, batch, batches // 3, prefetch),
        lambda: claim_and_ack(connection, name, batch, batches // 3, prefetch, read=True),
    ]
    if redis is not None:
        redis.xgroup_create(name, "g", id="0", mkstream=True)
        jobs.append(lambda: redis_peer.push(redis, name, PAYLOAD, batch, batches))
        jobs.append(lambda: redis_peer.read_and_ack(redis, name, batch, batches))
    pushed, top, one_by_one, ahead, looked, *peer = rates(ROUNDS, *jobs)
    table = f"one caller, batch {batch}"
    report.add(table, "push", pushed, versus="ceiling", base=top, aim=">= 0.5" if batch == 100 else "")
    report.add(table, "ceiling (bare apsw, no dedupe)", top)
    report.add(table, "claim+ack", one_by_one, versus="push", base=pushed)
    aim = ">= 2" if batch == 100 else ""
    report.add(table, f"claim+ack, prefetch {prefetch}", ahead, versus="push", base=pushed, aim=aim)
    report.add(table, f"claim, look at every payload, ack; prefetch {prefetch}", looked, versus="push", base=pushed)
    if peer:
        report.add(table, "Redis Streams push (always fsync)", peer[0], versus="our push", base=pushed)
        report.add(table, "Redis Streams read+ack", peer[1], versus="ours, looking at every payload", base=looked)


def many_callers(report: Report, folder: Path) -> None:
    """Single messages from many callers share a commit."""
    with ackwise.connect(f"sqlite:///{folder}/threads.db") as connection:
        one, many = rates(ROUNDS, lambda: _threads(connection, 1, 300), lambda: _threads(connection, 32, 100))
    report.add("many callers, single messages", "1 thread", one)
    report.add("many callers, single messages", "32 threads", many, versus="1 thread", base=one, aim=">= 3")
    one, many = asyncio.run(_coroutine_rates(folder))
    report.add("many callers, single messages", "1 coroutine", one)
    report.add("many callers, single messages", "32 coroutines", many, versus="1 coroutine", base=one, aim=">= 5")


def _threads(connection: Connection, threads: int, each: int) -> int:
    def run() -> None:
        for _ in range(each):
            connection.push("singles", TEXT)

    workers = [threading.Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return threads * each


async def _coroutine_rates(folder: Path) -> tuple[float, float]:
    async with ackwise.connect_async(f"sqlite:///{folder}/coroutines.db") as connection:

        async def run(each: int) -> None:
            for _ in range(each):
                await connection.push("singles", TEXT)

        async def measure(callers: int, each: int) -> float:
            started = time.perf_counter()
            await asyncio.gather(*(run(each) for _ in range(callers)))
            return callers * each / (time.perf_counter() - started)

        ones, manys = [], []
        for _ in range(ROUNDS):
            ones.append(await measure(1, 300))
            manys.append(await measure(32, 100))
    return sorted(ones)[ROUNDS // 2], sorted(manys)[ROUNDS // 2]


def beside_readers(report: Report, folder: Path) -> None:
    """Push alone, and beside sixteen threads that read without pause."""
    with ackwise.connect(f"sqlite:///{folder}/readers.db") as connection:
        push(connection, "busy", 100, 100)
        stop = threading.Event()
        looks = [0] * 16

        def look(number: int) -> None:
            while not stop.is_set():
                connection.browse("busy", limit=50)
                connection.stats("busy")
                looks[number] += 2

        (alone,) = rates(ROUNDS, lambda: push(connection, "busy", 100, 100))
        readers = [threading.Thread(target=look, args=(number,)) for number in range(16)]
        for reader in readers:
            reader.start()
        (beside,) = rates(ROUNDS, lambda: push(connection, "busy", 100, 100))
        stop.set()
        for reader in readers:
            reader.join()
    table = "push, batch 100, beside readers"
    report.add(table, "alone", alone)
    report.add(table, "beside 16 busy readers", beside, versus="alone", base=alone, aim=">= 0.4")
    report.add(table, "looks taken meanwhile", sum(looks), "queries", metric="count")
