"""`ackwise run`, SIGTERM, health, traces and the AsyncAPI document."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pydantic
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ackwise
from ackwise import errors
from ackwise.cli.run import load_app
from ackwise.subscriber import App, Message, TestApp, tracing
from tests.client.flaky import Flaky
from tests.patience import PATIENCE
from tests.server.running import Running
from tests.subscriber.conftest import Run, until
from tests.subscriber.run_command import ORDERS, line_with, started


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop_orders.py").write_text(ORDERS)
    (tmp_path / "go").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_orders", raising=False)
    return tmp_path


def test_run_drains_at_sigterm(folder: Path) -> None:
    url = f"sqlite:///{folder}/orders.db"
    with ackwise.connect(url) as queue:
        queue.push_many("orders", range(4))
    with started(folder) as process:
        line_with(process.stdout, "began 0")
        process.send_signal(signal.SIGTERM)
        with ackwise.connect(url) as queue:
            # What was not begun goes back at once, while the first is still at work.
            while not (rest := queue.claim("orders", max=9, wait=1)):
                assert process.poll() is None
            assert rest.release() == "released"
        (folder / "go").write_text("go")
        assert process.stdout is not None
        assert process.stdout.read() == "ended 0\n"
        assert process.wait(PATIENCE) == 0
    with ackwise.connect(url) as queue:
        (row,) = queue.groups("orders")
        rest = queue.claim("orders", max=9)
        assert (row.acked, row.leases, [one.json() for one in rest]) == (1, 0, [1, 2, 3])
        assert {one.failures for one in rest} == {0}


def test_handler_that_exceeds_its_grace_is_released(folder: Path) -> None:
    url = f"sqlite:///{folder}/orders.db"
    with ackwise.connect(url) as queue:
        queue.push("orders", 1)
    with started(folder, "--grace", "0") as process:
        line_with(process.stdout, "began 1")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    with ackwise.connect(url) as queue:
        (again,) = queue.claim("orders")
        assert (again.failures, again.attempt) == (0, 2)


def test_health_over_http(folder: Path) -> None:
    (folder / "go").write_text("go")
    with started(folder, "--health-port", "0") as process:
        at = re.search(r"(http://[\d.:]+)/health", line_with(process.stderr, "health at"))
        assert at is not None
        with httpx2.Client(base_url=at[1], trust_env=False) as http:
            for page in ("live", "ready", "started"):
                answer = http.get(f"/health/{page}")
                assert (answer.status_code, answer.json()) == (200, {"status": "UP"})
            assert http.get("/asyncapi.json").json()["operations"]["bill"]["summary"] == "Charge the customer."
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("shop_orders", "names no app"),
        (":app", "names no app"),
        ("no_such_module:app", "no module 'no_such_module'"),
        ("shop_orders:missing", "has no 'missing'"),
        ("shop_orders:nothing", "is a int"),
    ],
)
def test_target_without_an_app_is_refused(folder: Path, target: str, why: str) -> None:
    with pytest.raises(errors.BadInput, match=why):
        load_app(target)


def test_import_error_inside_the_module_is_not_hidden(folder: Path) -> None:
    (folder / "broken_shop.py").write_text("import no_such_thing\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_thing"):
        load_app("broken_shop:app")


def test_health_of_an_app(live: App) -> None:
    @live.subscriber("q")
    async def handle(number: int) -> None: ...

    async def job() -> None:
        assert (live.started, await live.ready(), live.live) == (False, False, True)
        async with live:
            assert (live.started, await live.ready(), live.live) == (True, True, True)
            (consumer,) = live._consumers
            feeding = consumer._feed_task
            assert feeding is not None
            feeding.cancel()
            await until(feeding.done)
            assert not live.live
        assert (live.started, await live.ready()) == (True, False)

    asyncio.run(job())


def test_app_that_only_publishes_is_ready(live: App) -> None:
    live.publisher("q", int)

    async def job() -> None:
        async with live:
            assert await live.ready()
        assert not await live.ready()

    asyncio.run(job())


def test_server_that_is_gone_is_told_of_at_once(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A health check times out sooner than a call does."""
    monkeypatch.setattr("ackwise.subscriber.feeds.broker_feed.CHECK_WITHIN", 0.2)

    async def job() -> None:
        with Running(store_url) as server:
            door = Flaky(server.address)
            app = App(door.url)
            app.publisher("q", int)
            await app.start()
            door.down()
            async with asyncio.timeout(PATIENCE):
                assert not await app.ready()
            assert app.live
            await app.stop(grace=0)

    asyncio.run(job())


@pytest.mark.parametrize(
    "secret",
    [
        "nats://me:secret@127.0.0.1:1",
        "nats://secret@127.0.0.1:1",
        "http://me:secret@127.0.0.1:1",
        "postgresql://me:secret@127.0.0.1:1/db",
        "mysql://me:secret@127.0.0.1:1/db",
    ],
)
def test_passwords_are_not_told(secret: str, caplog: pytest.LogCaptureFixture) -> None:
    app = App(secret, start_patience=0)
    with pytest.raises((errors.StoreUnavailable, errors.BadStoreURL), match=r"127\.0\.0\.1") as problem:
        asyncio.run(app.start())
    assert "secret" not in str(problem.value) + caplog.text
    assert "secret" not in str(app.asyncapi())


def test_password_in_the_url_is_hidden_at_the_start(folder: Path) -> None:
    with started(folder, "--url", "sqlite:///password=secret") as process:
        assert "password=***" in line_with(process.stderr, "subscribers run on")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def test_spans_hang_together_across_the_queue(app: App, run: Run, spans: InMemorySpanExporter) -> None:
    orders = app.publisher("q", int)

    @app.subscriber("q", retry_limit=1)
    async def handle(msg: Message[int]) -> None:
        assert "traceparent" in msg.headers
        await msg.ack()
        raise ValueError("seen in the span")

    async def job(test: TestApp) -> None:
        with trace.get_tracer("test").start_as_current_span("caller"):
            await orders.publish(1)
        await test.deliver()

    run(app, job)
    by_name: dict[str, ReadableSpan] = {one.name: one for one in spans.get_finished_spans()}
    caller, send, process = by_name["caller"], by_name["send q"], by_name["process q"]
    assert (send.parent, process.parent) == (caller.context, send.context) or (
        send.parent is not None
        and process.parent is not None
        and caller.context is not None
        and send.context is not None
        and (send.parent.span_id, process.parent.span_id) == (caller.context.span_id, send.context.span_id)
    )
    assert process.attributes is not None
    assert process.attributes["messaging.destination.name"] == "q"
    assert process.attributes["messaging.delivery.attempt"] == 1
    assert [event.name for event in process.events] == ["exception"]


def test_app_may_leave_tracing_out(run: Run, spans: InMemorySpanExporter) -> None:
    app = App("http://127.0.0.1:1", tracing=False)
    orders = app.publisher("q", int)

    @app.subscriber("q")
    async def handle(number: int) -> None: ...

    async def job(test: TestApp) -> None:
        await orders.publish(1)
        assert await test.deliver() == 1

    run(app, job)
    assert spans.get_finished_spans() == ()


def test_tracing_without_a_provider_is_off() -> None:
    assert not tracing.is_configured()


class Line(pydantic.BaseModel):
    sku: str


class Order(pydantic.BaseModel):
    id: int
    lines: list[Line] = []


@dataclass
class Receipt:
    """What the customer gets."""

    id: int


def test_asyncapi_document_describes_the_app(app: App) -> None:
    @app.subscriber("orders/new")
    async def bill(order: Order) -> None:
        """Charge the customer.

        And more.
        """

    @app.subscriber("many")
    async def many(msg: Message[list[Receipt]]) -> None: ...

    @app.subscriber("blobs")
    async def blobs(body: bytes) -> None: ...

    app.publisher("receipts", Receipt)
    document = app.asyncapi(title="Shop")
    assert (document["asyncapi"], document["info"]["title"]) == ("3.0.0", "Shop")
    names = {name.rpartition(".")[2]: one for name, one in document["operations"].items()}
    assert names["bill"]["action"] == "receive"
    assert names["bill"]["summary"] == "Charge the customer."
    assert names["receipts"]["action"] == "send"
    assert set(document["components"]["schemas"]) == {"Order", "Line", "Receipt"}
    for operation in document["operations"].values():
        for ref in (operation["channel"], *operation["messages"]):
            assert resolved(document, ref["$ref"])
    channel = document["channels"]["orders/new"]
    assert channel["messages"]["Order"]["payload"] == {"$ref": "#/components/schemas/Order"}
    assert document["channels"]["blobs"]["messages"]["bytes"]["payload"]["format"] == "binary"


def test_function_on_several_queues_is_several_operations(app: App) -> None:
    async def handle(number: int) -> None: ...

    app.subscriber("a")(handle)
    app.subscriber("b")(handle)
    app.subscriber("b", group="other")(handle)
    app.publisher("c", int)
    app.publisher("c", str)
    operations = app.asyncapi()["operations"]
    assert [one["channel"]["$ref"] for one in operations.values()] == [
        "#/channels/a",
        "#/channels/b",
        "#/channels/b",
        "#/channels/c",
    ]
    assert len(operations["publish.c"]["messages"]) == 2


class Odd:
    """A type that only a custom codec can read."""


@pytest.mark.parametrize("content_type", ["application/x-odd", "application/json"])
def test_custom_codec_types_are_described_where_known(content_type: str) -> None:
    class Codec:
        def __init__(self) -> None:
            self.content_type = content_type

        def reader(self, kind: Any) -> Any:
            return lambda body: Odd()

        def writer(self, kind: Any) -> Any:
            return lambda odd: b""

    app = App("sqlite:///x.db", codec=Codec())

    @app.subscriber("a")
    async def handle(odd: Odd) -> None: ...

    app.publisher("b", Odd)
    channels = app.asyncapi()["channels"]
    for name in ("a", "b"):
        assert channels[name]["messages"]["Odd"] == {"name": "Odd", "contentType": content_type}


def resolved(document: dict[str, Any], ref: str) -> Any:
    found: Any = document
    for step in ref.removeprefix("#/").split("/"):
        found = found[step.replace("~1", "/").replace("~0", "~")]
    return found
