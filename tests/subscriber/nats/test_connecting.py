"""Servers that are there, and servers that are not."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ackwise import errors
from ackwise.subscriber import App
from ackwise.subscriber.feeds.jetstream import connection
from tests.subscriber.conftest import until
from tests.subscriber.nats.conftest import Order, keep, run, serving

NOBODY = "nats://127.0.0.1:1"


def test_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_WITHIN", 0.3)
    app = App(NOBODY, start_patience=0.3)

    async def job() -> None:
        with pytest.raises(errors.StoreUnavailable, match=r"no NATS server answers at nats://127.0.0.1:1.*tried"):
            await app.start()

    asyncio.run(job())


@pytest.mark.parametrize("commas", [False, True])
def test_app_with_an_unreachable_server_uses_the_other(nats_url: str, subject: str, commas: bool) -> None:
    app = App(f"{NOBODY},{nats_url}" if commas else [NOBODY, nats_url])
    seen, orders = keep(app, subject), app.publisher(subject, Order)

    async def job(app: App, js: object) -> None:
        await orders.publish(Order(1))
        await until(lambda: seen)
        assert await seen[0].ack()

    run(app, job)


def test_server_without_jetstream_is_said_to_be_one() -> None:
    async def job(url: str) -> None:
        told = r"the NATS server at nats://127\.0\.0\.1:\d+ has no JetStream; start it with -js"
        app = App(url, start_patience=0.1)
        orders = app.publisher("orders", Order)
        await app.connect()
        with pytest.raises(errors.StoreUnavailable, match=told):
            await orders.publish(Order(1))
        await app.stop()
        keep(app, "orders")
        with pytest.raises(errors.StoreUnavailable, match=told):
            await app.start()

    with serving() as server:
        asyncio.run(job(server.url))


def test_password_is_in_no_error_and_no_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(connection, "CONNECT_WITHIN", 0.3)
    caplog.set_level(logging.DEBUG)

    async def job(url: str) -> None:
        app = App(url, start_patience=0.1)
        with pytest.raises(errors.StoreUnavailable) as unavailable:
            await app.start()
        assert "secret" not in str(unavailable.value) + caplog.text

    asyncio.run(job("nats://user:secret@127.0.0.1:1"))
    asyncio.run(job("nats://secret@127.0.0.1:1"))
    with serving("--user", "user", "--pass", "right") as server:
        asyncio.run(job(server.url.replace("//", "//user:secret@")))
