"""Many at once: one lock is given once, and nothing is lost or settled twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import aiohttp

from ackwise.clock import ManualClock
from tests.protocols.pushpop.pushpop_api import PushPopApi
from tests.server.running import Running

ITEMS, WORKERS, QUEUES = 10_000, 16, 20


async def post(http: aiohttp.ClientSession, path: str, body: Any = None) -> tuple[int, Any]:
    async with http.post(path, json=body) as answer:
        return answer.status, await answer.json()


def test_fifty_concurrent_pops_with_ack_lock_once(pushpop: PushPopApi, server: Running) -> None:
    pushpop.push(*range(100))

    async def all_at_once() -> list[tuple[int, Any]]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(server.url, connector=connector) as http:
            return await asyncio.gather(
                *(post(http, f"/queue/{pushpop.queue}/pop?require_ack=true") for _ in range(50))
            )

    for round_number in range(3):
        answers = asyncio.run(all_at_once())
        assert Counter(status for status, _ in answers) == {200: 1, 423: 49}
        (held,) = [body for status, body in answers if status == 200]
        assert {body["lock_expires_at"] for _, body in answers} == {held["lock_expires_at"]}
        assert held["items"] == [{"n": round_number}]
        assert pushpop.ack(held["lock_id"]).body["items_acknowledged"] == 1
    assert pushpop.depth == {"0": 97}


class Workers:
    """Sixteen of them pop from twenty queues, acknowledge most, dead-letter some, and abandon the rest."""

    def __init__(self, http: aiohttp.ClientSession, queues: list[str], clock: ManualClock) -> None:
        self.http, self.queues, self.clock = http, queues, clock
        self.dice = random.Random(5)
        self.acked: Counter[int] = Counter()
        self.popped: Counter[int] = Counter()
        self.dead: Counter[int] = Counter()
        self.abandoned = 0

    @property
    def done(self) -> int:
        return self.acked.total() + self.popped.total() + self.dead.total()

    async def work(self) -> None:
        while self.done < ITEMS:
            queue = self.dice.choice(self.queues)
            held = self.dice.random() < 0.8
            competing = self.dice.random() < 0.3
            ttl = self.dice.choice((1, 5, 30))
            query = f"count={self.dice.choice((1, 10, 40, 100))}&ttl_seconds={ttl}"
            query += f"&require_ack={str(held).lower()}&allow_competing_consumers={str(competing).lower()}"
            status, body = await post(self.http, f"/queue/{queue}/pop?{query}")
            if status == 423 or not body["items"]:
                self.clock.advance(0.5)
                continue
            assert status == 200, body
            await self.settle(queue, held, body)

    async def settle(self, queue: str, held: bool, body: Any) -> None:
        items = [one["n"] for one in body["items"]]
        if not held:
            self.popped.update(items)
            return
        roll = self.dice.random()
        if roll < 0.2:
            self.abandoned += 1
            return
        verb = "deadletter" if roll < 0.25 else "acknowledge"
        status, answer = await post(self.http, f"/queue/{queue}/{verb}", {"lock_id": body["lock_id"]})
        assert status in (200, 410), answer
        if status == 200:
            (self.dead if verb == "deadletter" else self.acked).update(items)


def test_ten_thousand_items_through_sixteen_workers(pushpop: PushPopApi, server: Running) -> None:
    queues = [pushpop.another().queue for _ in range(QUEUES)]

    async def everything() -> Workers:
        async with aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(limit=0)) as http:
            size = ITEMS // QUEUES
            for number, queue in enumerate(queues):
                numbers = range(number * size, (number + 1) * size)
                items = [{"item": {"n": n}, "priority": n % 3} for n in numbers]
                status, _ = await post(http, f"/queue/{queue}/push", {"items": items})
                assert status == 200
            workers = Workers(http, queues, pushpop.clock)
            await asyncio.gather(*(workers.work() for _ in range(WORKERS)))
            return workers

    found = asyncio.run(everything())
    settled = found.acked + found.popped + found.dead
    assert set(settled) == set(range(ITEMS))
    assert set(settled.values()) == {1}
    assert found.abandoned > 10
    pushpop.clock.advance(300)
    for queue in queues:
        assert PushPopApi(pushpop.http, pushpop.clock, queue).look()["depth"] == {}
