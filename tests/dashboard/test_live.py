"""Live events: what open pages are told, how often, and how their connections end."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

import ackwise
from ackwise.broker import AsyncBroker
from ackwise.connect import open_store
from ackwise.core.commands import Push
from ackwise.core.errors import BadInput
from ackwise.core.messages import NewMessage
from ackwise.dashboard import live as live_module
from ackwise.dashboard.live import CLOCK, MOST_SUBSCRIBERS, QUEUES, LiveEvents, LiveStream, queue_topic
from tests.dashboard.site import Site
from tests.patience import PATIENCE
from tests.server.running import Running


class Listener:
    """An open page: collects what its stream sends."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.news = asyncio.Event()
        self.gone = asyncio.Event()
        self.ended = False

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            self.ended = not message.get("more_body")
            self.sent.append(message["body"].decode())
            self.news.set()

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    @property
    def changes(self) -> list[str]:
        return [text.strip().removeprefix("data: ") for text in self.sent if text.startswith("data:")]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self.news.clear()
                await self.news.wait()


def listen(live: LiveEvents, broker: AsyncBroker, topics: str) -> tuple[Listener, asyncio.Task[None]]:
    listener = Listener()
    stream = live.response(broker, topics)
    assert isinstance(stream, LiveStream)
    return listener, asyncio.ensure_future(stream({}, listener.receive, listener.send))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


def with_broker(store_url: str, work: Callable[[AsyncBroker, LiveEvents], Any]) -> None:
    async def run() -> None:
        broker = await AsyncBroker.start(open_store(store_url))
        live = LiveEvents(PATIENCE)
        try:
            await work(broker, live)
        finally:
            live.stop()
            await broker.close()

    asyncio.run(run())


def push(queue: str, count: int = 1) -> Push:
    return Push(queue=queue, messages=[NewMessage(payload=b"1") for _ in range(count)])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "FLUSH_EVERY", 0.02)


def test_many_changes_become_one_message(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "FLUSH_EVERY", 0.2)

    async def work(broker: AsyncBroker, live: LiveEvents) -> None:
        page, task = listen(live, broker, "queues")
        await page.until(lambda: len(page.sent) == 1)
        for _ in range(50):
            await broker.send(push("orders"))
        await page.until(lambda: bool(page.changes))
        began = time.monotonic()
        count = len(page.changes)
        while time.monotonic() < began + 0.5:
            await broker.send(push("orders"))
        assert 1 <= len(page.changes) - count <= 4
        page.gone.set()
        await task

    with_broker(store_url, work)


@pytest.mark.usefixtures("quick")
def test_page_of_one_queue_hears_only_its_queue(store_url: str) -> None:
    async def work(broker: AsyncBroker, live: LiveEvents) -> None:
        orders, first = listen(live, broker, queue_topic("orders"))
        both, second = listen(live, broker, f"queues {queue_topic('mail')}")
        await until(lambda: live.count == 2)
        await broker.send(push("mail"))
        await both.until(lambda: bool(both.changes))
        assert set(" ".join(both.changes).split()) == {QUEUES, queue_topic("mail")}
        assert orders.changes == []
        await broker.send(push("orders"))
        await orders.until(lambda: bool(orders.changes))
        assert set(orders.changes) == {queue_topic("orders")}
        for page, task in ((orders, first), (both, second)):
            page.gone.set()
            await task

    with_broker(store_url, work)


@pytest.mark.usefixtures("quick")
def test_page_that_leaves_leaves_no_listener(store_url: str) -> None:
    async def work(broker: AsyncBroker, live: LiveEvents) -> None:
        before = len(broker.events.listening)
        for _ in range(3):
            page, task = listen(live, broker, "queues")
            await until(lambda: len(broker.events.listening) == before + 1)
            page.gone.set()
            await task
            assert live.count == 0
            await until(lambda: len(broker.events.listening) == before)

    with_broker(store_url, work)


@pytest.mark.usefixtures("quick")
def test_stop_ends_every_stream(store_url: str) -> None:
    async def work(broker: AsyncBroker, live: LiveEvents) -> None:
        pages = [listen(live, broker, "queues") for _ in range(5)]
        await until(lambda: live.count == 5)
        live.stop()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(task for _, task in pages))
        assert all(page.ended for page, _ in pages)
        assert live.response(broker, "queues").status_code == 503

    with_broker(store_url, work)


@pytest.mark.usefixtures("quick")
def test_idle_page_is_told_that_time_passes(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "POLL_LOCAL", 0.1)

    async def work(broker: AsyncBroker, live: LiveEvents) -> None:
        page, task = listen(live, broker, "clock graph")
        await page.until(lambda: bool(page.changes))
        assert page.changes[0] == f"{CLOCK} graph"
        page.gone.set()
        await task

    with_broker(store_url, work)


def test_idle_connection_gets_a_heartbeat(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "HEARTBEAT", 0.02)

    async def work(broker: AsyncBroker, live: LiveEvents) -> None:
        page, task = listen(live, broker, "graph")
        await page.until(lambda: page.sent.count(": idle\n\n") >= 3)
        page.gone.set()
        await task

    with_broker(store_url, work)


def test_number_of_open_pages_is_bounded(store_url: str) -> None:
    async def work(broker: AsyncBroker, live: LiveEvents) -> None:
        pages = [listen(live, broker, "queues") for _ in range(MOST_SUBSCRIBERS)]
        await until(lambda: live.count == MOST_SUBSCRIBERS)
        refused = live.response(broker, "queues")
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        for page, task in pages:
            page.gone.set()
            await task

    with_broker(store_url, work)


@pytest.mark.parametrize("topics", ["", "nonsense", "queues nonsense", " ".join(f"q-{n}" for n in range(21))])
def test_unknown_topics_are_refused(store_url: str, topics: str) -> None:
    async def work(broker: AsyncBroker, live: LiveEvents) -> None:
        with pytest.raises(BadInput):
            live.response(broker, topics)

    with_broker(store_url, work)


def test_slow_page_keeps_one_set_of_changes(store_url: str) -> None:
    subscriber = live_module.Subscriber(frozenset({QUEUES}))
    for _ in range(1000):
        subscriber.notify({QUEUES, "dead"})
    assert subscriber.take() == {QUEUES}
    assert subscriber.take() == set()


def test_stream_of_the_server_ends_with_the_drain(store_url: str) -> None:
    server = Running(store_url)
    with (
        ackwise.connect(server.url) as queue,
        httpx2.Client(timeout=PATIENCE, trust_env=False) as client,
        client.stream("GET", f"{server.url}/dashboard/live?topics=queues") as stream,
    ):
        assert stream.headers["content-type"].startswith("text/event-stream")
        pieces = stream.iter_text()
        assert "retry:" in next(pieces)
        queue.push("orders", 1)
        text = ""
        while "data: queues" not in text:
            text += next(pieces)
        stopping = threading.Thread(target=server.stop)
        began = time.monotonic()
        stopping.start()
        for _ in pieces:
            pass
        took = time.monotonic() - began
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    server.check()
    assert took < (server.server.config.timeout_graceful_shutdown or 0)


def test_client_that_vanishes_is_forgotten(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    live = server.server.runtime.dashboard.live
    with socket.create_connection(server.address) as raw:
        raw.sendall(b"GET /dashboard/live?topics=queues HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in raw.recv(1000)
        end = time.monotonic() + PATIENCE
        while live.count != 1:
            assert time.monotonic() < end
            time.sleep(0.005)
    while live.count:
        assert time.monotonic() < end
        time.sleep(0.005)


def test_many_open_pages_cost_one_read_per_interval(site: Site, server: Running, queue: ackwise.Connection) -> None:
    queue.push("orders", 1)
    dashboard = server.server.runtime.dashboard
    store, asked = server.server.runtime.broker().store, []
    plain = store.ask

    def counted(query: Any) -> Any:
        asked.append(type(query).__name__)
        return plain(query)

    dashboard.snapshots._now = lambda: 1000.0  # one interval, however slow the machine is
    store.ask = counted  # type: ignore[assignment,method-assign]
    try:
        for _ in range(30):
            assert site.get("/queues/orders", **{"hx-request": "true"}).status == 200
    finally:
        store.ask = plain  # type: ignore[method-assign]
    for name in ("QueueStats", "GetQueue", "ListPartitions", "ListOldestLeases", "TotalLedger", "ReadLedger"):
        assert asked.count(name) == 1, (name, asked)
