"""An app on a fresh store, embedded and over HTTP, on a clock that stands still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ackwise.client.aio import messages
from ackwise.clock import ManualClock
from ackwise.core.policy import QueuePolicy
from ackwise.subscriber import App, TestApp
from tests.client.conftest import clock, store_url, url
from tests.patience import PATIENCE

__all__ = ["clock", "store_url", "url"]

Run = Callable[[App, Callable[[TestApp], Awaitable[None]]], None]


@pytest.fixture(autouse=True)
def immediate_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues of these tests retry at once, so that a test need not move the clock after each failure."""
    monkeypatch.setattr(messages, "NEW_QUEUE_POLICY", QueuePolicy())


@pytest.fixture
def app() -> App:
    """No server listens at its URL: a test sets its own."""
    return App("http://127.0.0.1:1", start_patience=0)


@pytest.fixture
def run(url: str, clock: ManualClock) -> Run:
    """Let a test deliver by hand, on the embedded broker and over HTTP."""

    def within(app: App, job: Callable[[TestApp], Awaitable[None]]) -> None:
        async def go() -> None:
            async with asyncio.timeout(PATIENCE), TestApp(app, url=url, clock=clock) as test:
                await job(test)

        asyncio.run(go())

    return within


@pytest.fixture
def live(app: App, url: str, clock: ManualClock) -> App:
    """The same app, to be started as in production."""
    app.url, app.clock = url, clock
    return app


async def until(true: Callable[[], Any]) -> None:
    """Until something has come about."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it did not come about"
        await asyncio.sleep(0.002)
