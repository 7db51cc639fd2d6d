"""Payload types, unreadable payloads, CloudEvents, and typed publishers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

from ackwise import errors
from ackwise.subscriber import App, Message, TestApp
from tests.subscriber.conftest import Run


class Model(pydantic.BaseModel):
    id: int
    total: float = 0


@dataclass
class Data:
    id: int


class Struct(msgspec.Struct):
    id: int


class Typed(TypedDict):
    id: int


class Renamed(pydantic.BaseModel):
    order_id: int = pydantic.Field(alias="orderId")


class Camel(msgspec.Struct, rename="camel"):
    order_id: int


@dataclass
class Holder:
    inner: Model


Positive = Annotated[int, pydantic.Field(gt=0)]


KINDS: list[tuple[Any, Any]] = [
    (Model, Model(id=1, total=2.5)),
    (list[Model], [Model(id=1)]),
    (Holder, Holder(Model(id=1))),
    (Data, Data(1)),
    (Struct, Struct(1)),
    (Typed, {"id": 1}),
    (list[Data], [Data(1), Data(2)]),
    (dict[str, int], {"a": 1}),
    (int, 7),
    (float, 1.5),
    (bool, True),
    (str, "text"),
    (bytes, b"\x00\xff"),
    (Model | None, Model(id=3)),
    (Any, {"anything": [1, None]}),
    (object, [1, "a"]),
    (Renamed, Renamed(orderId=3)),
    (list[Renamed], [Renamed(orderId=3)]),
    (Camel, Camel(3)),
    (Positive, 5),
]


@pytest.mark.parametrize(("kind", "value"), KINDS, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("explicit", [False, True])
def test_published_value_arrives_unchanged(app: App, run: Run, kind: Any, value: Any, explicit: bool) -> None:
    seen: list[Any] = []
    publisher = app.publisher("q", kind)

    async def implicit(payload: Any) -> None:
        seen.append(payload)

    async def wrapped(msg: Any) -> None:
        seen.append(msg.payload)
        await msg.ack()

    implicit.__annotations__["payload"] = kind
    wrapped.__annotations__["msg"] = Message[kind]
    app.subscriber("q")(wrapped if explicit else implicit)

    async def job(test: TestApp) -> None:
        await publisher.publish(value)
        await test.deliver()
        assert seen == [value]
        assert await test.acked("q") == 1

    run(app, job)


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize("body", [b"{not json", b'{"id": "x"}', b"", b"\xff\xfe"], ids=repr)
@pytest.mark.parametrize("kind", [Model, Data])
def test_undecodable_payload_is_buried_without_a_call(
    app: App, run: Run, explicit: bool, body: bytes, kind: Any
) -> None:
    calls: list[Any] = []

    async def implicit(payload: Any) -> None:
        calls.append(payload)

    async def wrapped(msg: Any) -> None:
        calls.append(msg)

    implicit.__annotations__["payload"] = kind
    wrapped.__annotations__["msg"] = Message[kind]
    app.subscriber("q")(wrapped if explicit else implicit)

    async def job(test: TestApp) -> None:
        await test.publish("q", body)
        await test.deliver()
        (letter,) = await test.dead_letters("q")
        assert (letter.reason, letter.payload, letter.failures, calls) == ("undecodable", body, 0, [])
        assert letter.error
        assert await test.pending("q") == 0

    run(app, job)


class Verbose:
    """A codec whose errors are long, and no valid text."""

    content_type = "text/plain"

    def reader(self, kind: Any) -> Any:
        def read(body: bytes) -> Any:
            raise ValueError("\udc80\0" + "x" * 100_000)

        return read

    def writer(self, kind: Any) -> Any:
        return bytes


def test_error_of_an_undecodable_message_may_be_anything(app: App, run: Run) -> None:
    @app.subscriber("q", codec=Verbose())
    async def handle(number: int) -> None: ...

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        (letter,) = await test.dead_letters("q")
        assert letter.reason == "undecodable"
        assert 1000 < len(letter.error) < 10_000

    run(app, job)


def test_undecodable_may_be_retried_instead(app: App, run: Run) -> None:
    @app.subscriber("q", on_undecodable="nak", retry_limit=2, backoff=(5,))
    async def handle(number: int) -> None: ...

    async def job(test: TestApp) -> None:
        await test.publish("q", "x")
        assert (await test.deliver(), await test.advance(5)) == (1, 1)
        (letter,) = await test.dead_letters("q")
        assert (letter.reason, letter.failures) == ("retry_limit", 2)

    run(app, job)


def events(app: App) -> list[dict[str, str]]:
    seen: list[dict[str, str]] = []

    @app.subscriber("q")
    async def handle(msg: Message[Data]) -> None:
        seen.append(msg.headers)
        await msg.ack()

    return seen


def test_cloud_events_are_written_and_tolerated_when_absent(app: App, run: Run) -> None:
    seen = events(app)
    publisher = app.publisher("q", Data)

    async def job(test: TestApp) -> None:
        await publisher.publish(Data(1), headers={"colour": "red"})
        await test.publish("q", {"id": 2})
        await test.deliver()
        written, absent = seen
        assert absent == {}
        assert {name: written[name] for name in ("ce-specversion", "ce-type", "ce-source", "colour")} == {
            "ce-specversion": "1.0",
            "ce-type": "Data",
            "ce-source": "ackwise",
            "colour": "red",
        }
        assert written["ce-datacontenttype"] == "application/json"
        assert len(written["ce-id"]) == 36
        assert written["ce-time"].endswith("Z")

    run(app, job)


def test_event_of_another_version_is_undecodable(app: App, run: Run) -> None:
    seen = events(app)

    async def job(test: TestApp) -> None:
        await test.publish("q", {"id": 1}, headers={"ce-specversion": "0.3"})
        await test.deliver()
        (letter,) = await test.dead_letters("q")
        assert (letter.reason, seen) == ("undecodable", [])
        assert "0.3" in letter.error

    run(app, job)


def test_cloud_events_may_be_required_or_left_out(app: App, run: Run) -> None:
    seen = events(app)
    publisher = app.publisher("q", Data)
    app.cloudevents = "require"
    silent = App("unused", cloudevents="off")
    assert silent.source is None

    async def job(test: TestApp) -> None:
        await publisher.publish(Data(1))
        await test.publish("q", {"id": 2})
        await test.deliver()
        (letter,) = await test.dead_letters("q")
        assert (letter.reason, letter.error) == ("undecodable", "not a CloudEvent: it has no ce-specversion")
        assert len(seen) == 1

    run(app, job)


def test_publisher_refuses_nothing_and_what_it_cannot_write(app: App, run: Run) -> None:
    models, data = app.publisher("q", Model), app.publisher("q", Data)

    async def job(test: TestApp) -> None:
        for publisher, value in ((models, None), (data, None), (models, object()), (data, object())):
            with pytest.raises(errors.BadInput):
                await publisher.publish(value)  # type: ignore[arg-type]
        with pytest.raises(errors.BadInput, match="delay"):
            await data.publish(Data(1), delay=-1)
        assert [one.name for one in await test.connection.queues()] == []

    run(app, job)


UNFIT: list[tuple[Any, Any]] = [
    (Data, "not a Data"),
    (Data, {"wrong": 1}),
    (Data, Data("x")),  # type: ignore[arg-type]
    (Struct, {"id": None}),
    (Typed, {}),
    (list[Data], [Data(1), 2]),
    (int, "x"),
    (int, 1.5),
    (Positive, -5),
    (float, float("nan")),
    (str, "\udc80"),
    (bytes, 5),
    (bytes, "text"),
    (bytes, [1, 2]),
    (Model, {"id": "x"}),
]


@pytest.mark.parametrize(("kind", "value"), UNFIT, ids=lambda value: str(value)[:30])
def test_publisher_refuses_what_its_subscribers_could_not_read(app: App, run: Run, kind: Any, value: Any) -> None:
    publisher = app.publisher("q", kind)

    async def job(test: TestApp) -> None:
        with pytest.raises(errors.BadInput, match="payload"):
            await publisher.publish(value)
        assert [one.name for one in await test.connection.queues()] == []

    run(app, job)


def test_test_publishes_models_under_their_aliases(app: App, run: Run) -> None:
    seen: list[Renamed] = []

    @app.subscriber("q")
    async def handle(order: Renamed) -> None:
        seen.append(order)

    async def job(test: TestApp) -> None:
        await test.publish("q", Renamed(orderId=3))
        await test.deliver()
        assert seen == [Renamed(orderId=3)]

    run(app, job)


def test_publisher_delays_and_stores_once(app: App, run: Run) -> None:
    seen = events(app)
    publisher = app.publisher("q", Data)

    async def job(test: TestApp) -> None:
        first = await publisher.publish(Data(1), dedup_id="order-1", delay=10)
        assert await publisher.publish(Data(1), dedup_id="order-1", delay=10) == first
        assert (await test.deliver(), await test.advance(10), len(seen)) == (0, 1, 1)

    run(app, job)


def test_publisher_of_an_app_that_is_not_started_says_so(app: App) -> None:
    with pytest.raises(RuntimeError, match="not started"):
        app.publisher("q", Data).publish(Data(1))


class Upper:
    """A custom codec."""

    content_type = "text/upper"

    def reader(self, kind: Any) -> Any:
        return lambda body: body.decode().lower()

    def writer(self, kind: Any) -> Any:
        return lambda text: text.upper().encode()


def test_codec_of_ones_own(app: App, run: Run) -> None:
    seen: list[str] = []
    publisher = app.publisher("q", str, codec=Upper())

    @app.subscriber("q", codec=Upper())
    async def handle(msg: Message[str]) -> None:
        seen.append(f"{msg.payload} {msg.raw!r}")
        await msg.ack()

    async def job(test: TestApp) -> None:
        await publisher.publish("hello")
        await test.deliver()
        assert seen == ["hello b'HELLO'"]

    run(app, job)
