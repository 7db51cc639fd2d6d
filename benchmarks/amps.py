"""Effect of ack batching on an AMPS consumer: messages per second and ack frames, by batch size and timeout."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from ackwise.amps import AsyncClient
from benchmarks import servers
from benchmarks.report import Report

SIZES = (1, 10, 50, 200)
TIMEOUTS = (0.05, 0.5)
ROUNDS = 3
BACKLOG = 400
"""The same for all sizes, so that only the batching differs: twice the largest of them."""
FEW, MANY = 5_000, 20_000
PAYLOAD = b"x" * 190
TABLE = f"AMPS client: consume and ack, backlog {BACKLOG}, SQLite"


class Consumed(NamedTuple):
    rate: float
    frames: float
    """Ack frames for each thousand messages."""


def ack_batching(report: Report, folder: Path) -> None:
    with servers.amps(folder, f"sqlite:///{folder}/amps.db") as uri:
        found = asyncio.run(_everything(uri))
    for timeout in TIMEOUTS:
        base = found[1, timeout].rate
        for size in SIZES:
            row = f"batches of {size}, timeout {timeout:g} s"
            one = found[size, timeout]
            aim = ">= 3" if size == 50 else ""
            report.add(TABLE, row, one.rate, versus="batches of 1", base=base, aim=aim)
            report.add(TABLE, f"{row}: ack frames", one.frames, "for 1,000 messages", metric="frames")


async def _everything(uri: str) -> dict[tuple[int, float], Consumed]:
    """Run all settings in turns, so that other load on the machine affects each of them."""
    seen: dict[tuple[int, float], list[Consumed]] = {}
    for number in range(ROUNDS):
        for size in SIZES:
            for timeout in TIMEOUTS:
                done = await _consume(uri, f"queue://bench-{number}-{size}-{timeout}", size, timeout)
                seen.setdefault((size, timeout), []).append(done)
    return {
        key: Consumed(statistics.median(one.rate for one in runs), statistics.median(one.frames for one in runs))
        for key, runs in seen.items()
    }


async def _consume(uri: str, topic: str, size: int, timeout: float) -> Consumed:
    """Publish messages, then consume and ack them until the server has the last ack."""
    count = FEW if size == 1 else MANY
    client = AsyncClient("bench")
    await (await client.connect(uri)).logon()
    client.set_auto_ack(True).set_ack_batch_size(size).set_ack_timeout(timeout)
    try:
        for _ in range(count):
            await client.publish(topic, PAYLOAD, confirm=False)
        await client.flush()
        taken, last = 0, asyncio.Event()

        def handle(_: object) -> None:
            nonlocal taken
            taken += 1
            if taken == count:
                last.set()

        started = time.perf_counter()
        await client.subscribe(topic, handle, max_backlog=BACKLOG)
        await last.wait()
        await client.flush_acks()
        took = time.perf_counter() - started
        return Consumed(count / took, 1000 * client.ack_frames / count)
    finally:
        await client.close()
