"""Dependencies, middleware, routers, lifespan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest

from ackwise import errors
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


def test_failing_dependency_fails_or_chooses_the_outcome(app: App, run: Run) -> None:
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


def test_first_middleware_is_outermost(app: App, run: Run) -> None:
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


def test_routers_add_handlers_and_publishers_under_prefix(app: App, run: Run) -> None:
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


class Marked:
    """A custom codec."""

    content_type = "text/x-marked"

    def __init__(self, mark: str) -> None:
        self._mark = mark

    def reader(self, kind: Any) -> Any:
        return lambda body: int(body.decode().removeprefix(self._mark))

    def writer(self, kind: Any) -> Any:
        return lambda value: f"{self._mark}{value}".encode()


def test_router_without_an_option_takes_it_from_the_app(run: Run) -> None:
    quiet, own = Router("quiet."), Router("own.", codec=Marked("!"), on_undecodable="dead_letter")
    publishers = quiet.publisher("q", int), own.publisher("q", int), own.publisher("third", int, codec=Marked("?"))
    for router in (quiet, own):

        @router.subscriber("q", retry_limit=2)
        async def handle(number: int) -> None:
            trail.append(f"{number}")

    app = App(
        "http://127.0.0.1:1",
        name="shop",
        cloudevents="off",
        codec=Marked("#"),
        on_undecodable="nak",
        tracing=False,
    )
    app.include_router(quiet)
    app.include_router(own)

    async def job(test: TestApp) -> None:
        for number, publisher in enumerate(publishers):
            await publisher.publish(number)
        found = [await test.connection.browse(name) for name in ("quiet.q", "own.q", "own.third")]
        assert [(one.payload, one.headers) for (one,) in found] == [(b"#0", {}), (b"!1", {}), (b"?2", {})]
        await test.deliver()
        assert trail == ["0", "1"]
        for name in ("quiet.q", "own.q"):
            await test.publish(name, b"x")
        await test.deliver()
        letters = {letter.queue: letter.reason for letter in await test.dead_letters()}
        assert letters == {"quiet.q": "retry_limit", "own.q": "undecodable"}

    run(app, job)


def test_source_of_events_is_the_apps_name_also_from_routers(run: Run) -> None:
    router = Router()
    publisher = router.publisher("q", int)
    app = App("http://127.0.0.1:1", name="shop")
    app.include_router(router)

    async def job(test: TestApp) -> None:
        await publisher.publish(1)
        (stored,) = await test.connection.browse("q")
        assert stored.headers["ce-source"] == "shop"

    run(app, job)


def test_router_that_is_taken_in_is_complete(app: App) -> None:
    router = Router("r.")
    app.include_router(router)
    with pytest.raises(RuntimeError, match=r"handle comes too late.*before include_router"):

        @router.subscriber("late")
        async def handle(number: int) -> None: ...

    with pytest.raises(RuntimeError, match="publisher of late comes too late"):
        router.publisher("late", int)
    with pytest.raises(RuntimeError, match="included already"):
        App("http://127.0.0.1:1").include_router(router)
    with pytest.raises(RuntimeError, match="included already"):
        app.include_router(app)
    assert (app.subscriptions, app.publishers) == ([], [])


def test_unreadable_type_is_refused_when_router_is_included(app: App) -> None:
    router = Router()

    async def handle(number: complex) -> None: ...

    router.subscriber("q")(handle)
    with pytest.raises(TypeError, match=r"handle.*complex"):
        app.include_router(router)


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


def test_test_app_needs_no_server_and_leaves_the_app_as_it_was() -> None:
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


@pytest.mark.parametrize("where", ["lifespan", "queue"])
def test_test_app_whose_start_fails_leaves_the_app_as_it_was(where: str) -> None:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        if where == "lifespan":
            raise ValueError("no database")
        await app.link().close()
        yield
        trail.append("down")

    app = App("http://127.0.0.1:1", lifespan=lifespan)

    @app.subscriber("q")
    async def handle(number: int) -> None: ...

    async def job() -> None:
        with pytest.raises((ValueError, errors.Draining), match=r"no database|is closed"):
            async with TestApp(app):
                pass
        with pytest.raises(RuntimeError, match="not started"):
            app.link()

    asyncio.run(job())
    assert (app.url, app.clock, trail) == ("http://127.0.0.1:1", None, [] if where == "lifespan" else ["down"])


def test_app_that_runs_is_not_tested_nor_stopped_by_that(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    app = App(url)

    async def job() -> None:
        async with app:
            with pytest.raises(RuntimeError, match="already"):
                async with TestApp(app):
                    pass
            assert await app.ready()
            assert (app.url, app.clock) == (url, None)

    asyncio.run(job())


def test_message_that_goes_round_for_ever_is_noticed() -> None:
    app = App("http://127.0.0.1:1")

    @app.subscriber("q", retry_limit=None)
    async def handle(number: int) -> None:
        raise Nak(0)

    async def job() -> None:
        async with TestApp(app) as test:
            await test.connection.create_queue("q", exist_ok=True)
            await test.connection.configure_queue("q", delivery_limit=None)
            await test.publish("q", 1)
            with pytest.raises(AssertionError, match="more are due"):
                await test.deliver()

    asyncio.run(job())
