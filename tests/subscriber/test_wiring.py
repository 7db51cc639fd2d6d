"""Dependencies, middleware, routers, lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

from ackwise.subscriber import App, Depends, Message, Nak, Router, TestApp
from tests.subscriber.conftest import Run

trail: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    trail.clear()


def settings() -> dict[str, str]:
    trail.append("settings")
    return {"bank": "test"}


async def bank(config: Annotated[dict[str, str], Depends(settings)]) -> AsyncIterator[str]:
    trail.append("open")
    yield config["bank"]
    trail.append("close")


def tagged(msg: Message[Any]) -> Iterator[str]:
    yield f"{msg.queue}/{msg.attempt}"
    trail.append("untag")


def test_dependencies_are_made_once_for_each_message_and_closed(app: App, run: Run) -> None:
    @app.subscriber("q")
    async def handle(
        number: int,
        config: Annotated[dict[str, str], Depends(settings)],
        at: Annotated[str, Depends(bank)],
        tag: Annotated[str, Depends(tagged)],
    ) -> None:
        trail.append(f"{number} {config['bank']} {at} {tag}")

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert trail == ["settings", "open", "1 test test q/1", "untag", "close"]

    run(app, job)


def test_a_dependency_that_fails_is_a_failure_and_one_may_choose_the_outcome(app: App, run: Run) -> None:
    def closed(msg: Message[Any]) -> None:
        raise Nak(9) if msg.attempt == 1 else ValueError("closed")

    async def handle(number: int, gate: Annotated[None, Depends(closed)]) -> None:
        trail.append("called")

    handle.__annotations__["gate"] = Annotated[None, Depends(closed)]
    app.subscriber("q", retry_limit=2)(handle)

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        assert (await test.deliver(), await test.advance(9)) == (1, 1)
        (letter,) = await test.dead_letters("q")
        assert (letter.error, trail) == ("closed", [])

    run(app, job)


def test_tests_put_something_else_in_place_of_a_dependency(app: App, run: Run) -> None:
    @app.subscriber("q")
    async def handle(number: int, at: Annotated[str, Depends(bank)]) -> None:
        trail.append(at)

    app.dependency_overrides[bank] = lambda: "fake"

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert trail == ["fake"]

    run(app, job)


def test_middleware_stands_around_the_handler_the_first_outermost(app: App, run: Run) -> None:
    def around(name: str) -> Any:
        async def middleware(msg: Message[Any], call_next: Any) -> Any:
            trail.append(f"{name} in {msg.payload}")
            try:
                return await call_next(msg)
            finally:
                trail.append(f"{name} out")

        return middleware

    app.middleware += [around("a"), around("b")]

    @app.subscriber("q")
    async def handle(number: int) -> None:
        trail.append("handle")

    async def job(test: TestApp) -> None:
        await test.publish("q", 1)
        await test.deliver()
        assert trail == ["a in 1", "b in 1", "handle", "b out", "a out"]

    run(app, job)


def test_routers_bring_their_handlers_and_publishers_under_their_prefix(app: App, run: Run) -> None:
    orders, inner = Router("orders."), Router("eu.")
    publisher = inner.publisher("new", int)

    @inner.subscriber("new")
    async def handle(number: int) -> None:
        trail.append(f"new {number}")

    with pytest.raises(RuntimeError, match="include_router"):
        inner.link()
    orders.include_router(inner)
    app.include_router(orders)

    async def job(test: TestApp) -> None:
        await publisher.publish(3)
        await test.deliver()
        assert trail == ["new 3"]
        assert [one.name for one in await test.connection.queues()] == ["orders.eu.new"]

    run(app, job)


def test_lifespan_stands_around_everything(run: Run) -> None:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        trail.append("up")
        await app.publisher("q", int).publish(1)
        yield
        trail.append("down")

    app = App("http://127.0.0.1:1", lifespan=lifespan)

    @app.subscriber("q")
    async def handle(number: int) -> None:
        trail.append("handle")

    async def job(test: TestApp) -> None:
        await test.deliver()

    run(app, job)
    assert trail == ["up", "handle", "down"]


def test_a_test_app_needs_no_server_and_leaves_the_app_as_it_was() -> None:
    import asyncio

    app = App("http://127.0.0.1:1")

    @app.subscriber("q")
    async def handle(number: int) -> None:
        raise Nak(0)

    async def job() -> None:
        async with TestApp(app) as test:
            await test.publish("q", 1)
            assert await test.deliver() == 3
            assert (await test.dead_letters("q")).total == 1

    asyncio.run(job())
    assert (app.url, app.clock) == ("http://127.0.0.1:1", None)


def test_a_message_that_goes_round_for_ever_is_noticed() -> None:
    import asyncio

    app = App("http://127.0.0.1:1")

    @app.subscriber("q", retry_limit=None)
    async def handle(number: int) -> None:
        raise Nak(0)

    async def job() -> None:
        async with TestApp(app) as test:
            await test.connection.create_queue("q", exist_ok=True)
            await test.connection.configure_queue("q", delivery_limit=None)
            await test.publish("q", 1)
            with pytest.raises(AssertionError, match="still more"):
                await test.deliver()

    asyncio.run(job())
