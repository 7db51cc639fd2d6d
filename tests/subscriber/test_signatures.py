"""What a handler may look like is decided when it is decorated."""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NewType, Optional, TypeVar, Union

import pytest
import typing_extensions

import ackwise
from ackwise.core.errors import BadInput
from ackwise.subscriber import AckPolicy, App, Depends, Message, TestApp
from tests.subscriber.conftest import Run

T = TypeVar("T")


@dataclass
class Order:
    id: int


class OrderMessage(Message[Order]):
    pass


async def payload(order: Order) -> None: ...
async def wrapped(msg: Message[Order]) -> None: ...
async def bare(msg: Message) -> None: ...  # type: ignore[type-arg]
async def derived(msg: OrderMessage) -> None: ...
async def annotated(msg: Annotated[Message[Order], "documented"]) -> None: ...
async def listed(orders: list[Order]) -> None: ...
async def optional_payload(order: Order | None) -> None: ...
async def raw(body: bytes) -> None: ...
async def with_default(order: Order, loud: bool = False) -> None: ...
async def with_dependency(order: Order, limit: Annotated[int, Depends(lambda: 3)]) -> None: ...
async def keyword_only(*, order: Order) -> None: ...


Named = NewType("Named", Message[Order])
Alias = typing_extensions.TypeAliasType("Alias", Message[Order])
MaybeAlias = typing_extensions.TypeAliasType("MaybeAlias", Message[Order] | None)


class Plain:
    def __init__(self, id: int) -> None:
        self.id = id


@dataclass
class WithPlain:
    inner: list[Plain]


@dataclass
class Other:
    id: int


async def named_anew(msg: Named) -> None: ...
async def aliased(msg: Alias) -> None: ...


class Service:
    async def method(self, order: Order) -> None: ...


@pytest.mark.parametrize(
    ("handler", "kind", "explicit"),
    [
        (payload, Order, False),
        (wrapped, Order, True),
        (bare, bytes, True),
        (derived, Order, True),
        (annotated, Order, True),
        (listed, list[Order], False),
        (optional_payload, Order | None, False),
        (raw, bytes, False),
        (with_default, Order, False),
        (with_dependency, Order, False),
        (keyword_only, Order, False),
        (Service().method, Order, False),
        (named_anew, Order, True),
        (aliased, Order, True),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_valid_signature_is_accepted(app: App, handler: Callable[..., Any], kind: object, explicit: bool) -> None:
    assert app.subscriber("q")(handler) is handler
    (subscription,) = app.subscriptions
    assert (subscription.signature.kind, subscription.explicit) == (kind, explicit)


async def optional(msg: Optional[Message[Order]]) -> None: ...  # noqa: UP045
async def union(msg: Union[Message[Order], Order]) -> None: ...  # noqa: UP007
async def bar(msg: Message[Order] | None) -> None: ...
async def many(msgs: list[Message[Order]]) -> None: ...
async def nested(msg: Message[Message[Order]]) -> None: ...
async def of_anything(msg: Message[T]) -> None: ...
async def two(order: Order, other: Order) -> None: ...
async def both(order: Order, msg: Message[Order]) -> None: ...
async def none() -> None: ...
async def stars(*orders: Order) -> None: ...
async def double_stars(**orders: Order) -> None: ...
async def untyped(order) -> None: ...  # type: ignore[no-untyped-def]
async def unknown(order: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821
async def by_position(order: Order, /) -> None: ...
async def generator(order: Order):  # type: ignore[no-untyped-def]
    yield order


async def maybe_aliased(msg: MaybeAlias) -> None: ...
async def message_with_default(order: Order, msg: Message[Order] = None) -> None: ...  # type: ignore[assignment]
async def optional_with_default(order: Order, msg: Message[Order] | None = None) -> None: ...
async def only_a_default(msg: Message[Order] | None = None) -> None: ...
async def attribute(order: datetime.Missing) -> None: ...  # type: ignore[name-defined]
async def syntax(order: Any) -> None: ...
async def plain(order: Plain) -> None: ...
async def plain_inside(msg: Message[WithPlain]) -> None: ...
async def imaginary(number: complex) -> None: ...
async def function(call: Callable[[int], int]) -> None: ...
async def a_type(kind: type[Order]) -> None: ...
async def two_alike(order: Order | Other) -> None: ...


async def lost_dependency(order: Order, x: Annotated[int, Depends(lambda y: y)]) -> None: ...


syntax.__annotations__["order"] = "Order["

REFUSED = [
    (optional, "always passed"),
    (union, "always passed"),
    (bar, "always passed"),
    (many, "always passed"),
    (nested, "name its payload type"),
    (of_anything, "name its payload type"),
    (two, r"2 parameters .*\(order, other\)"),
    (both, "2 parameters"),
    (none, "no parameter"),
    (stars, r"takes \*[a-z]+; .* one by one"),
    (double_stars, r"takes \*\*[a-z]+; .* one by one"),
    (untyped, "no type"),
    (unknown, "cannot be resolved.*Missing"),
    (by_position, "by position"),
    (generator, "generator"),
    (lost_dependency, "Ackwise cannot provide it"),
    (maybe_aliased, "always passed"),
    (message_with_default, "always passed"),
    (optional_with_default, "always passed"),
    (only_a_default, "always passed"),
    (attribute, "cannot be resolved.*Missing"),
    (syntax, "cannot be resolved"),
    (plain, "no payload can be decoded as .*Plain"),
    (plain_inside, "no value that can be decoded as Plain"),
    (imaginary, "complex"),
    (function, "Callable"),
    (a_type, "type"),
    (two_alike, "no payload can be decoded as .*Other"),
]


@pytest.mark.parametrize(("handler", "why"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_refused_with_the_functions_name(app: App, handler: Callable[..., Any], why: str) -> None:
    with pytest.raises(TypeError, match=why) as problem:
        app.subscriber("q")(handler)
    assert handler.__qualname__ in str(problem.value) or handler is lost_dependency
    assert app.subscriptions == []


def test_class_inside_function_is_not_found_with_reason(app: App) -> None:
    class Inner:
        pass

    async def handle(order: Inner) -> None: ...

    with pytest.raises(TypeError, match=r"handle.*inside a function"):
        app.subscriber("q")(handle)


def test_decorated_class_is_refused(app: App) -> None:
    with pytest.raises(TypeError, match="is a function"):
        app.subscriber("q")(Order)


class Loop(Generic[T]):
    pass


def test_dependency_on_itself(app: App) -> None:
    def chicken(egg: Annotated[int, Depends(lambda: 0)]) -> int:
        return egg

    chicken.__annotations__["egg"] = Annotated[int, Depends(chicken)]

    async def handle(order: Order, x: Annotated[int, Depends(lambda: 0)]) -> None: ...

    handle.__annotations__["x"] = Annotated[int, Depends(chicken)]
    with pytest.raises(TypeError, match="depends on itself"):
        app.subscriber("q")(handle)


def test_codec_of_ones_own_may_read_any_type_and_may_refuse_it(app: App) -> None:
    class Pickles:
        content_type = "application/x-pickle"

        def reader(self, kind: Any) -> Any:
            if kind is not Plain:
                raise KeyError(kind)
            return lambda body: Plain(len(body))

        def writer(self, kind: Any) -> Any:
            return bytes

    app.subscriber("q", codec=Pickles())(plain)
    with pytest.raises(TypeError, match=r"imaginary.*complex"):
        app.subscriber("q", codec=Pickles())(imaginary)
    with pytest.raises(TypeError, match=r"publisher of q.*Plain"):
        app.publisher("q", Plain)


@pytest.mark.parametrize(
    "options",
    [
        {"group": "a", "durable": "b"},
        {"ephemeral": True, "durable": "a"},
        {"ephemeral": True, "group": "a"},
        {"ack": AckPolicy.MANUAL, "auto_ack": True},
        {"ack": AckPolicy.FIRST, "auto_ack": False},
    ],
    ids=str,
)
def test_contradictory_options_are_refused(app: App, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"^payload: .* contradict"):
        app.subscriber("q", **options)(payload)
    assert app.subscriptions == []


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"prefetch": -1},
        {"max_pending": 0},
        {"lease": -1},
        {"backoff": (-1,)},
        {"retry_limit": -1},
        {"group": ""},
        {"queue": ""},
        {"ack": "sometimes"},
        {"backoff": 5},
    ],
    ids=str,
)
def test_invalid_option_is_refused_and_registers_nothing(app: App, options: dict[str, Any]) -> None:
    with pytest.raises((BadInput, TypeError), match=r"^payload: "):
        app.subscriber(**{"queue": "q", **options})(payload)
    assert app.subscriptions == []


def test_ack_policy_beside_message_is_ignored_with_warning(app: App, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        app.subscriber("q", auto_ack=True)(wrapped)
    assert "wrapped" in caplog.text
    assert "ignored" in caplog.text


def test_auto_ack_spells_the_policies(app: App) -> None:
    app.subscriber("q", auto_ack=True)(payload)
    app.subscriber("q", auto_ack=False)(payload)
    app.subscriber("q")(payload)
    assert [one.ack for one in app.subscriptions] == [AckPolicy.ON_SUCCESS, AckPolicy.MANUAL, AckPolicy.ON_SUCCESS]


@pytest.mark.parametrize("options", [{"ephemeral": True}, {"stream": "ORDERS"}])
def test_option_of_nats_is_refused_on_an_ackwise_broker(live: App, url: str, options: dict[str, Any]) -> None:
    @live.subscriber("q", **options)
    async def handle(number: int) -> None: ...

    async def start() -> None:
        with pytest.raises(BadInput, match=r"handle: (ephemeral=True|stream=) is for NATS"):
            await live.start()
        async with ackwise.connect_async(url) as queue:
            assert await queue.queues() == []

    asyncio.run(start())


def test_app_for_nats_may_be_tested_without_one(app: App, run: Run) -> None:
    seen: list[int] = []

    @app.subscriber("q", stream="ORDERS", ephemeral=True)
    async def handle(number: int) -> None:
        seen.append(number)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        assert (await test.deliver(), seen) == (1, [1])

    run(app, job)
