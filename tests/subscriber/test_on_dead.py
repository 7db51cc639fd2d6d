"""`on_dead`: an app's function sees every dead letter, in order, at least once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from ackwise import QueuePolicy, connect, connect_async
from ackwise.client.results import DeadLetter
from ackwise.clock import ManualClock
from ackwise.core.errors import BadInput
from ackwise.core.queries import ListHooks
from ackwise.subscriber import App
from tests.patience import PATIENCE
from tests.server.running import Running

P = ParamSpec("P")


def in_a_loop(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Runs an async test."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


ONCE = QueuePolicy(retry_limit=1)


def kill(url: str, *numbers: int, clock: ManualClock | None = None) -> None:
    """Messages die in a process of their own, as far as the app can tell."""
    with connect(url, clock=clock) as other:
        for number in numbers:
            other.push("orders", {"n": number})
            other.claim("orders", group="workers")[0].reject(f"reason {number}")


def create(url: str, clock: ManualClock | None = None) -> None:
    with connect(url, clock=clock) as queue:
        queue.create_queue("orders", ONCE)


class Seen:
    """Collects letters. `wait` returns the numbers of the first `count` of them."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []
        self._come = asyncio.Event()

    def note(self, letter: DeadLetter) -> None:
        self.letters.append(letter)
        self._come.set()

    async def add(self, letter: DeadLetter) -> None:
        self.note(letter)

    async def wait(self, count: int, poke: Callable[[], object] = lambda: None) -> list[int]:
        async with asyncio.timeout(PATIENCE):
            while len(self.letters) < count:
                self._come.clear()
                poke()
                await self._come.wait()
        return [letter.json()["n"] for letter in self.letters]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/app.db?durability=normal"


@in_a_loop
async def test_letters_of_the_app_itself_are_reported(url: str) -> None:
    create(url)
    seen = Seen()
    app = App(url)

    @app.subscriber("orders", retry_limit=1)
    async def bill(order: dict[str, Any]) -> None:
        raise ValueError("no stock")

    @app.on_dead("orders")
    async def note(letter: DeadLetter) -> None:
        seen.note(letter)

    async with app, await connect_async(url) as other:
        await other.push_many("orders", [{"n": 1}, {"n": 2}])
        assert sorted(await seen.wait(2)) == [1, 2]
    assert seen.letters[0].error_type == "ValueError"


@in_a_loop
async def test_restart_continues_behind_the_last_letter(url: str) -> None:
    """Letters that died before the first start are not reported. Those that died while the app was down are."""
    create(url)
    kill(url, 0)
    seen = Seen()

    def app() -> App:
        made = App(url, name="shop")
        made.on_dead("orders")(seen.add)
        return made

    async with app():
        kill(url, 1)
        assert await seen.wait(1, lambda: None) == [1]
    kill(url, 2, 3)
    async with app():
        assert await seen.wait(3) == [1, 2, 3]


@in_a_loop
async def test_failing_function_is_called_again(url: str) -> None:
    clock = ManualClock()
    create(url, clock)
    seen, tries = Seen(), []

    def note(letter: DeadLetter) -> None:
        tries.append(letter.json()["n"])
        if len(tries) < 3:
            raise RuntimeError("pager is down")
        app_loop.call_soon_threadsafe(seen.note, letter)

    app = App(url, clock=clock)
    app.on_dead("orders")(note)
    app_loop = asyncio.get_running_loop()
    async with app:
        kill(url, 1, 2, clock=clock)
        async with await connect_async(url, clock=clock) as other:
            for failures, wait in ((1, 1.0), (2, 2.0)):
                hook = await failed(other.transport.ask, failures, app)
                assert hook.error == "RuntimeError: pager is down"
                assert hook.retry_in == wait * 1_000_000
                clock.advance(wait)
            assert await seen.wait(2) == [1, 2]
    assert tries == [1, 1, 1, 2]


async def failed(ask: Callable[[ListHooks], Awaitable[list[Any]]], failures: int, app: App) -> Any:
    async with asyncio.timeout(PATIENCE):
        while True:
            (hook,) = await ask(ListHooks(queue="orders"))
            if hook.failures == failures:
                return hook
            app._clock_moved()
            await asyncio.sleep(0.01)


@in_a_loop
async def test_expiry_in_another_process_is_reported(tmp_path: Path) -> None:
    """The app speaks to a server. The message dies by the expiry of another client's lease."""
    clock, seen = ManualClock(), Seen()
    with Running(f"sqlite:///{tmp_path}/server.db?durability=normal", clock) as server:
        create(server.url)
        app = App(server.url, clock=clock, on_dead=seen.add)

        @app.subscriber("orders", group="others")
        async def ignore(order: dict[str, Any]) -> None:
            pass

        async with app, await connect_async(server.url) as other:
            await other.push("orders", {"n": 7})
            await other.claim("orders", group="workers", lease=10)
            clock.advance(11)
            await other.transport.ask(ListHooks())
            assert await seen.wait(1, app._clock_moved) == [7]
    assert seen.letters[0].group == "workers"


@in_a_loop
async def test_two_processes_report_each_letter_once(url: str) -> None:
    create(url)
    seen = Seen()
    apps = [App(url, name="shop") for _ in range(2)]
    for app in apps:
        app.on_dead("orders")(seen.add)
    async with apps[0], apps[1]:
        kill(url, 1, 2, 3)
        for app in apps:
            app._clock_moved()
        assert await seen.wait(3) == [1, 2, 3]
        async with await connect_async(url) as other:
            hooks = await other.transport.ask(ListHooks(queue="orders"))
            assert [hook.name for hook in hooks] == ["app:shop:Seen.add"]
    assert len(seen.letters) == 3


def test_wrong_use_is_refused() -> None:
    app = App("sqlite:///never.db")
    with pytest.raises(TypeError, match="name the queue"):
        app.on_dead(print)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="must be a function"):
        App("sqlite:///never.db", on_dead="print")  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        app.on_dead("")
