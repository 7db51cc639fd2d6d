"""What `ackwise run` logs about failed messages, and the metrics of an app."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path

import httpx2
import pytest

import ackwise
from ackwise.subscriber import App
from ackwise.subscriber.health import serving_metrics
from tests.observability.scrapes import Scrape
from tests.patience import PATIENCE
from tests.server.running import Running


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with one message."""
    url = f"sqlite:///{tmp_path}/q.db"
    with ackwise.connect(url) as queue:
        queue.push("orders", {"n": 1})
    return url


def run_until(app: App, done: asyncio.Event) -> None:
    async def main() -> None:
        async with app:
            async with asyncio.timeout(PATIENCE):
                await done.wait()

    asyncio.run(main())


def test_failed_message_is_logged_with_its_next_attempt(url: str, caplog: pytest.LogCaptureFixture) -> None:
    app, done = App(url), asyncio.Event()

    @app.subscriber("orders", retry_limit=3, backoff=[0.01, 0.02])
    async def take(order: dict[str, int]) -> None:
        raise ValueError("no stock")

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "was the last" in record.getMessage():
                done.set()

    watch = Watch()
    logging.getLogger("ackwise.subscriber").addHandler(watch)
    try:
        run_until(app, done)
    finally:
        logging.getLogger("ackwise.subscriber").removeHandler(watch)
    said = [record.getMessage().partition(": ")[2] for record in caplog.records if ": attempt " in record.getMessage()]
    assert said == [
        "attempt 1 of 3, next in 0.01 s",
        "attempt 2 of 3, next in 0.02 s",
        "attempt 3 was the last, dead letter",
    ]
    seen = Scrape(app.metrics().decode())
    ((handler, _),) = seen.of("ackwise_handler_in_flight")
    assert handler.endswith("take")
    labels = {"handler": handler, "queue": "orders"}
    assert seen.value("ackwise_handler_failures_total", **labels) == 3
    assert seen.value("ackwise_handler_retries_total", **labels) == 2
    assert seen.value("ackwise_handler_settled_total", **labels, outcome="retried") == 3
    assert seen.value("ackwise_handler_seconds_count", **labels) == 3
    assert seen.value("ackwise_handler_in_flight", **labels) == 0


def test_metrics_port_serves_the_scrape_of_the_app(url: str) -> None:
    app = App(url)
    served = asyncio.Event()

    @app.subscriber("orders")
    async def take(order: dict[str, int]) -> None:
        served.set()

    async def main() -> str:
        async with app, serving_metrics(app.metrics, "127.0.0.1", 0) as where:
            async with asyncio.timeout(PATIENCE):
                await served.wait()
                while "ackwise_handler_settled_total{" not in app.metrics().decode():
                    await asyncio.sleep(0.01)
            async with httpx2.AsyncClient() as http:
                answer = await http.get(f"{where}/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return answer.text

    seen = Scrape(asyncio.run(main()))
    assert list(seen.of("ackwise_handler_settled_total").values()) == [1]
    assert seen.value("ackwise_app_connected") == 1


def test_connection_lost_and_back_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ackwise.client")
    store = f"sqlite:///{tmp_path}/q.db?durability=normal"
    with Running(store) as server:
        queue = ackwise.connect(server.url)
    port = server.address[1]
    waiting = threading.Thread(target=queue.queues)
    waiting.start()
    end = time.monotonic() + PATIENCE
    while "lost" not in caplog.text and time.monotonic() < end:
        time.sleep(0.01)
    with Running(store, port=port):
        waiting.join(PATIENCE)
        queue.close()
    said = [record.getMessage() for record in caplog.records if record.name == "ackwise.client"]
    assert said[0].startswith(f"connection to http://127.0.0.1:{port} lost: ")
    assert said[1].startswith(f"connection to http://127.0.0.1:{port} is back after ")
    assert len(said) == 2
