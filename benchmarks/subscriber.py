"""Subscribers: messages settled per second, beside FastStream on JetStream. Also acks alone and in batches.

FastStream has every advantage: uvloop, which Ackwise does not use; its fastest way to consume; and a JetStream that
does not wait for the disk, while the Ackwise server does.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import uvloop
from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker, PullSub
from nats.js import JetStreamContext
from pydantic import BaseModel

import ackwise
from ackwise.core.commands import ByDelivery, Settle, Settlement
from ackwise.core.settlement import Outcome
from ackwise.subscriber import App
from benchmarks import servers
from benchmarks.report import Report

MESSAGES = 20_000
ROUNDS = 3
CONCURRENCY = 16
ACKS = 12_000
JSON = {"content-type": "application/json"}
CALLERS = (64, 256)
TABLE = f"implicit subscriber, concurrency {CONCURRENCY}, {MESSAGES:,} messages waiting"
ACK_TABLE = "acks of many tasks, each waits for its own verdict"


class Order(BaseModel):
    id: int
    total: float = 9.5


async def empty(order: Order) -> None:
    """Handler that does nothing."""


async def waiting(order: Order) -> None:
    """Handler that awaits 1 ms."""
    await asyncio.sleep(0.001)


Handler = Callable[[Order], Awaitable[None]]


WAYS: dict[str, dict[str, Any]] = {
    "pull, workers": {"pull_sub": PullSub(batch_size=256, timeout=1.0), "max_workers": CONCURRENCY},
    "pull, a batch at once": {"pull_sub": PullSub(batch_size=CONCURRENCY, timeout=1.0)},
    "push, workers": {"max_workers": CONCURRENCY},
}
"""Ways to run the same number of handlers in FastStream. Its documentation recommends pull."""


def everything(report: Report, folder: Path) -> None:
    with (
        servers.ackwise(folder, f"sqlite:///{folder}/subscriber.db", "subscriber") as ours,
        servers.nats(folder, sync=False) as jetstream,
    ):
        assert jetstream is not None
        for handler, row in ((empty, "empty handler"), (waiting, "1 ms of awaiting")):
            _compare(report, row, handler, ours.address, jetstream.address)
        asyncio.run(_acks(report, ours.address))


def _compare(report: Report, row: str, handler: Handler, ours: str, jetstream: str) -> None:
    rates: dict[str, list[float]] = {"Ackwise server": [], "Ackwise on JetStream": [], **{way: [] for way in WAYS}}
    for number in range(ROUNDS):
        # They take turns, so that whatever else the machine does hits all alike.
        name = f"{handler.__name__}{number}"
        rates["Ackwise server"].append(asyncio.run(_ours(ours, name, handler)))
        rates["Ackwise on JetStream"].append(asyncio.run(_ours_on_jetstream(jetstream, f"{name}-ours", handler)))
        for at, (way, options) in enumerate(WAYS.items()):
            rates[way].append(uvloop.run(_theirs(jetstream, f"{name}-{at}", handler, options)))
    medians = {name: statistics.median(each) for name, each in rates.items()}
    for way in WAYS:
        report.add(TABLE, f"{row}: FastStream 0.7, {way}", medians[way])
    base = max(medians[way] for way in WAYS)
    for name, aim in (("Ackwise on JetStream", ""), ("Ackwise server", ">= 1.5")):
        report.add(TABLE, f"{row}: {name}", medians[name], versus="FastStream", base=base, aim=aim)


async def _ours(url: str, queue: str, handler: Handler) -> float:
    """Run the app until the server reports all messages as acked."""
    async with ackwise.connect_async(url) as connection:
        await connection.push_many(queue, [{"id": number, "total": 9.5} for number in range(MESSAGES)])
        app = App(url, tracing=False)
        done = _Counted(handler)
        app.subscriber(queue, concurrency=CONCURRENCY)(done.call)
        began = time.perf_counter()
        async with app:
            await done.all
            while (await connection.groups(queue))[0].acked < MESSAGES:
                await asyncio.sleep(0.005)
            return MESSAGES / (time.perf_counter() - began)


async def _ours_on_jetstream(url: str, name: str, handler: Handler) -> float:
    client = await nats.connect(url)
    js = client.jetstream()
    await _fill(js, name)
    app = App(url, tracing=False)
    done = _Counted(handler)
    app.subscriber(name, durable="bench", concurrency=CONCURRENCY)(done.call)
    began = time.perf_counter()
    async with app:
        await done.all
        await _until_settled(js, name)
        took = time.perf_counter() - began
    await client.close()
    return MESSAGES / took


async def _theirs(url: str, name: str, handler: Handler, options: dict[str, Any]) -> float:
    broker = NatsBroker(url, logger=None)
    done = _Counted(handler)
    with warnings.catch_warnings():
        # That one does not push to a durable consumer: here it is asked for.
        warnings.simplefilter("ignore", RuntimeWarning)
        broker.subscriber(name, durable="bench", stream=JStream(name), ack_policy=AckPolicy.NACK_ON_ERROR, **options)(
            done.call
        )
    await broker.connect()
    js = broker.config.connection_state.stream
    await _fill(js, name)
    began = time.perf_counter()
    await broker.start()
    try:
        await done.all
        await _until_settled(js, name)
        return MESSAGES / (time.perf_counter() - began)
    finally:
        await broker.stop()


async def _fill(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[name])
    for first in range(0, MESSAGES, 500):
        await asyncio.gather(
            *(
                js.publish(name, Order(id=number).model_dump_json().encode(), headers=JSON)
                for number in range(first, first + 500)
            )
        )


async def _until_settled(js: JetStreamContext, name: str) -> None:
    """Wait until the consumer has no pending and no unacknowledged messages."""
    while True:
        info = await js.consumer_info(name, "bench")
        if not info.num_pending and not info.num_ack_pending:
            return
        await asyncio.sleep(0.005)


class _Counted:
    """Calls a handler, and signals when it was called for all messages."""

    def __init__(self, handler: Handler) -> None:
        left = MESSAGES
        self.all = all_done = asyncio.get_running_loop().create_future()

        async def call(order: Order) -> None:
            nonlocal left
            await handler(order)
            left -= 1
            if not left:
                all_done.set_result(None)

        self.call = call


async def _acks(report: Report, url: str) -> None:
    """Send the same acks through the client's batcher, and one request each."""
    async with ackwise.connect_async(url) as connection:
        for callers in CALLERS:
            rates: dict[bool, list[float]] = {True: [], False: []}
            for number in range(ROUNDS):
                for together in (True, False):
                    queue = f"acks-{callers}-{number}-{together}"
                    rates[together].append(await _acked(connection, queue, callers, together))
            base = statistics.median(rates[False])
            report.add(ACK_TABLE, f"{callers} tasks, one request each", base, "acks/s")
            report.add(
                ACK_TABLE,
                f"{callers} tasks, coalesced",
                statistics.median(rates[True]),
                "acks/s",
                versus="one request each",
                base=base,
                aim=">= 5",
            )


async def _acked(connection: ackwise.AsyncConnection, queue: str, callers: int, together: bool) -> float:
    await connection.push_many(queue, range(ACKS))
    deliveries = await connection.claim(queue, max=ACKS)
    acks = [Settle(entries=[Settlement(selector=ByDelivery(one.id), outcome=Outcome.ACK)]) for one in deliveries]
    transport = connection.transport

    async def work() -> None:
        while acks:
            settle = acks.pop()
            # The transport's own step without the batcher in front of it.
            (answer,) = await (transport.send(settle) if together else transport._settle(settle))  # type: ignore[attr-defined]
            assert answer.verdict == "acked"

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(callers)))
    return ACKS / (time.perf_counter() - began)
