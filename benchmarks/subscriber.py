"""Subscribers: messages settled per second, beside FastStream on JetStream; and acks alone and together."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker, PullSub
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
ACKS = 3_000
JSON = {"content-type": "application/json"}
CALLERS = 64
TABLE = f"implicit subscriber, concurrency {CONCURRENCY}, {MESSAGES:,} messages waiting"
ACK_TABLE = f"acks of {CALLERS} tasks, each waits for its own verdict"


class Order(BaseModel):
    id: int
    total: float = 9.5


async def empty(order: Order) -> None:
    """Nothing to do."""


async def waiting(order: Order) -> None:
    """1 ms of awaiting."""
    await asyncio.sleep(0.001)


Handler = Callable[[Order], Awaitable[None]]


def everything(report: Report, folder: Path) -> None:
    with (
        servers.ackwise(folder, f"sqlite:///{folder}/subscriber.db", "subscriber") as ours,
        servers.nats(folder, sync=False) as theirs,
    ):
        assert theirs is not None
        for handler, row in ((empty, "empty handler"), (waiting, "1 ms of awaiting")):
            rates: dict[str, list[float]] = {"ours": [], "theirs": []}
            for number in range(ROUNDS):
                # They take turns, so that whatever else the machine does hits both alike.
                name = f"{handler.__name__}{number}"
                rates["ours"].append(asyncio.run(_ours(ours.address, name, handler)))
                rates["theirs"].append(asyncio.run(_theirs(theirs.address, name, handler)))
            base = statistics.median(rates["theirs"])
            report.add(TABLE, f"{row}: FastStream 0.7, JetStream", base)
            report.add(
                TABLE,
                f"{row}: Ackwise server",
                statistics.median(rates["ours"]),
                versus="FastStream",
                base=base,
                aim=">= 1.5",
            )
        asyncio.run(_acks(report, ours.address))


async def _ours(url: str, queue: str, handler: Handler) -> float:
    """Until the server says that all are acked."""
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


async def _theirs(url: str, name: str, handler: Handler) -> float:
    """Until the consumer has nothing pending and nothing unacknowledged."""
    broker = NatsBroker(url, logger=None)
    done = _Counted(handler)
    broker.subscriber(
        name,
        durable="bench",
        stream=JStream(name),
        pull_sub=PullSub(batch_size=100, timeout=1.0),
        max_workers=CONCURRENCY,
        ack_policy=AckPolicy.NACK_ON_ERROR,
    )(done.call)
    await broker.connect()
    js = broker.config.connection_state.stream
    await js.add_stream(name=name, subjects=[name])
    body = Order(id=1).model_dump_json().encode()
    for _ in range(MESSAGES // 500):
        await asyncio.gather(
            *(js.publish(name, body, headers={"content-type": "application/json"}) for _ in range(500))
        )
    began = time.perf_counter()
    await broker.start()
    try:
        await done.all
        while True:
            info = await js.consumer_info(name, "bench")
            if not info.num_pending and not info.num_ack_pending:
                return MESSAGES / (time.perf_counter() - began)
            await asyncio.sleep(0.005)
    finally:
        await broker.stop()


class _Counted:
    """Calls a handler, and says when it was called for all messages."""

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
    """The same acks through the batcher of the client, and one request each."""
    async with ackwise.connect_async(url) as connection:
        rates: dict[bool, list[float]] = {True: [], False: []}
        for number in range(ROUNDS):
            for together in (True, False):
                rates[together].append(await _acked(connection, f"acks{number}{together}", together))
    base = statistics.median(rates[False])
    report.add(ACK_TABLE, "one request each", base, "acks/s")
    report.add(
        ACK_TABLE,
        "coalesced",
        statistics.median(rates[True]),
        "acks/s",
        versus="one request each",
        base=base,
        aim=">= 5",
    )


async def _acked(connection: ackwise.AsyncConnection, queue: str, together: bool) -> float:
    await connection.push_many(queue, range(ACKS))
    deliveries = list(await connection.claim(queue, max=ACKS))
    transport = connection.transport

    async def work() -> None:
        while deliveries:
            selector = ByDelivery(deliveries.pop().id)
            settle = Settle(entries=[Settlement(selector=selector, outcome=Outcome.ACK)])
            # The transport's own step without the batcher in front of it.
            (answer,) = await (transport.send(settle) if together else transport._settle(settle))  # type: ignore[attr-defined]
            assert answer.verdict == "acked"

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CALLERS)))
    return ACKS / (time.perf_counter() - began)
