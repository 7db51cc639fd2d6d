"""When something breaks: the answer is flat, says nothing of the inside, and nothing answered is lost."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ackwise.broker import AsyncBroker
from ackwise.clock import ManualClock
from ackwise.connect import open_store
from ackwise.core.answers import Handed
from ackwise.core.commands import Claim
from ackwise.core.errors import OutcomeUnknown
from ackwise.protocols.http_request import Call, ClientDisconnected
from ackwise.protocols.pushpop import PATHS, error_answer, pushpop_routes
from ackwise.protocols.pushpop.push import push_of
from ackwise.server.app import Application
from tests.patience import PATIENCE
from tests.protocols.pushpop.pushpop_api import PushPopApi
from tests.server.process import ServerProcess
from tests.server.running import Running
from tests.server.wire import Wire, request

WORKERS = 8


def test_unexpected_error_is_a_flat_500_without_internals(tmp_path: Path, clock: ManualClock) -> None:
    with (
        ServerProcess(f"sqlite:///{tmp_path}/broken.db") as server,
        httpx2.Client(base_url=server.url, timeout=PATIENCE) as http,
    ):
        pushpop = PushPopApi(http, clock, "broken")
        pushpop.push(1)
        pushpop.lock()
        with sqlite3.connect(tmp_path / "broken.db") as raw:
            raw.execute("DROP TABLE lease")
        raw.close()
        for answer in (
            pushpop.post("pop"),
            pushpop.ack("x"),
            pushpop.post("extend-lock", {"lock_id": "x"}),
            pushpop.post("deadletter", {"lock_id": "x"}),
            pushpop.call("GET", ""),
            pushpop.call("GET", "metadata"),
        ):
            assert (answer.status, set(answer.body), answer.body["success"]) == (500, {"success", "message"}, False)
            assert "lease" not in answer.body["message"]
            assert str(tmp_path) not in answer.body["message"]
        server.kill()


def test_server_that_stops_hands_out_nothing_more(any_store: str, clock: ManualClock) -> None:
    with Running(any_store, clock) as server, httpx2.Client(base_url=server.url) as http:
        pushpop = PushPopApi(http, clock)
        pushpop.push(1, 2)
        held = pushpop.lock()
        pushpop.ack(held["lock_id"])
        server._loop.call_soon_threadsafe(server.server.runtime.broker().stop_claims)
        answer = pushpop.http.post(f"/queue/{pushpop.queue}/pop")
        assert (answer.status_code, answer.json()["success"]) == (503, False)
        assert answer.headers["retry-after"] == "1"
        assert pushpop.depth == {"0": 1}


def test_pop_takes_nothing_before_it_is_asked_for_completely(
    any_store: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = threading.Event()
    gathered = Call._receive_body

    async def watched(call: Call) -> bytes:
        try:
            return await gathered(call)
        except ClientDisconnected:
            gone.set()
            raise

    monkeypatch.setattr(Call, "_receive_body", watched)
    with Running(any_store, clock) as server, httpx2.Client(base_url=server.url) as http:
        pushpop = PushPopApi(http, clock)
        pushpop.push(1)
        with Wire(server.address) as wire:
            wire.send(request("POST", f"/queue/{pushpop.queue}/pop", None, "content-length: 50") + b"{")
        assert gone.wait(PATIENCE)
        assert pushpop.drained() == [1]


def test_pop_that_is_cut_off_may_have_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    async def send(message: Any) -> None:
        told.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def nowhere(*_: Any) -> None:
        raise AssertionError

    async def main() -> None:
        broker = await AsyncBroker.start(open_store(f"sqlite:///{tmp_path}/cut.db?durability=normal"))
        await broker.send(push_of("q", [(b"{}", 0)]))
        app = Application(lambda: pushpop_routes(broker), nowhere, error_writers={PATHS: error_answer})
        scope = {"type": "http", "method": "POST", "path": "/queue/q/pop", "raw_path": b"/queue/q/pop"}
        claim, begun = broker.claim, asyncio.Event()

        async def slow(command: Claim, wait: float = 0.0, **rest: Any) -> Handed:
            begun.set()
            await asyncio.Event().wait()
            return await claim(command, wait, **rest)

        monkeypatch.setattr(broker, "claim", slow)
        call = asyncio.create_task(
            app({**scope, "query_string": b"", "headers": [(b"host", b"localhost")]}, receive, send)
        )
        await begun.wait()
        call.cancel()
        await call
        await broker.close()

    asyncio.run(main())
    assert told[0]["status"] == 500
    assert json.loads(told[1]["body"]) == {"success": False, "message": OutcomeUnknown.__doc__}


class Worker:
    """Pushes, pops under a lock and acknowledges, in a queue of its own, until the server is gone."""

    def __init__(self, url: str, number: int) -> None:
        self.queue = f"worker-{number}"
        self._http = httpx2.Client(base_url=url, timeout=PATIENCE)
        self.pushed: set[int] = set()
        self.acked: set[int] = set()
        self.doubtful: set[int] = set()
        """Of these a call was under way when the server died."""
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _work(self) -> None:
        number = 0
        try:
            while True:
                self.doubtful = set(range(number, number + 3))
                items = [{"item": {"n": n}, "priority": n % 2} for n in range(number, number + 3)]
                self._post("push", {"items": items})
                self.pushed |= self.doubtful
                number += 3
                self.doubtful = set()
                popped = self._post("pop?require_ack=true&ttl_seconds=300&count=2")
                self.doubtful = {one["n"] for one in popped["items"]}
                assert self._post("acknowledge", {"lock_id": popped["lock_id"]})["success"]
                self.acked |= self.doubtful
                self.doubtful = set()
        except httpx2.TransportError:
            self._http.close()

    def _post(self, verb: str, body: Any = None) -> Any:
        answer = self._http.post(f"/queue/{self.queue}/{verb}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def check(self, pushpop: PushPopApi) -> None:
        held = pushpop.metadata().get("_active_lock", {"items_with_priority": []})
        left = {one["item"]["n"] for one in held["items_with_priority"]}
        if left:
            pushpop.ack(held["lock_id"])
        waiting = pushpop.drained()
        assert len(waiting) == len(set(waiting))
        assert not left & set(waiting)
        left |= set(waiting)
        assert self.pushed - self.acked - self.doubtful <= left <= self.pushed - self.acked | self.doubtful


def test_kill_9_in_the_middle_of_work_loses_nothing_answered(any_store: str, clock: ManualClock) -> None:
    url = any_store.replace("durability=normal", "durability=full")
    with ServerProcess(url) as server:
        workers = [Worker(server.url, number) for number in range(WORKERS)]
        end = time.monotonic() + 30
        while min(len(worker.acked) for worker in workers) < 30:
            assert time.monotonic() < end
            time.sleep(0.01)
        server.kill()
        for worker in workers:
            worker.thread.join()
    with ServerProcess(url) as server, httpx2.Client(base_url=server.url, timeout=PATIENCE) as http:
        for worker in workers:
            worker.check(PushPopApi(http, clock, worker.queue))
