"""Turns of long statements: waiting callers alternate, and a wait is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ackwise.broker import fair_turns
from ackwise.broker.fair_turns import FairTurns
from ackwise.core.errors import Draining, Overloaded
from tests.patience import PATIENCE


class Scene:
    """Callers of turns. `order` lists the callers in the order in which they got their turns."""

    def __init__(self, at_once: int = 1) -> None:
        self.turns = FairTurns(at_once, "long statements")
        self.order: list[str] = []
        self.leave = asyncio.Semaphore(0)

    async def use(self, caller: str) -> None:
        async with self.turns.turn(caller):
            self.order.append(caller)
            await self.leave.acquire()

    async def start(self, callers: str) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self.use(caller)) for caller in callers]
        await asyncio.sleep(0)
        return tasks

    async def finish(self, tasks: list[asyncio.Task[None]]) -> list[BaseException | None]:
        for _ in tasks:
            self.leave.release()
        async with asyncio.timeout(PATIENCE):
            return await asyncio.gather(*tasks, return_exceptions=True)


def run(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


@pytest.mark.parametrize(
    ("at_once", "callers", "order"),
    [
        (1, "aaaab", "abaaa"),
        (2, "aaaaab", "aabaaa"),
        (1, "aaabbcc", "abcabca"),
        (2, "aaabbcc", "aabcabc"),
        (2, "baac", "baca"),
    ],
)
def test_waiting_callers_alternate(at_once: int, callers: str, order: str) -> None:
    async def scene() -> None:
        here = Scene(at_once)
        tasks = await here.start(callers)
        assert here.order == list(order[:at_once])
        assert await here.finish(tasks) == [None] * len(callers)
        assert here.order == list(order)
        assert await here.finish(await here.start("z")) == [None]

    run(scene())


def test_turn_that_comes_too_late_is_overloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        here = Scene()
        first = await here.start("a")
        monkeypatch.setattr(fair_turns, "LONGEST_WAIT", 0.01)
        (late,) = await here.start("b")
        with pytest.raises(Overloaded, match=r"waited 0\.01 seconds behind other long statements"):
            await late
        monkeypatch.undo()
        assert await here.finish([*first, *await here.start("c")]) == [None, None]
        assert here.order == ["a", "c"]

    run(scene())


def test_caller_that_leaves_gives_its_turn_back() -> None:
    async def scene() -> None:
        here = Scene()
        async with here.turns.turn("a"):
            waiting, leaving, woken, last = await here.start("bbcd")
            waiting.cancel()
            await asyncio.sleep(0)
            leaving.cancel()  # it waits until its task runs
        woken.cancel()  # it has the turn, and has not run since
        assert await here.finish([last]) == [None]
        assert here.order == ["d"]

    run(scene())


def test_close_refuses_callers_that_wait() -> None:
    async def scene() -> None:
        here = Scene()
        holder, waiting = await here.start("ab")
        here.turns.close()
        with pytest.raises(Draining):
            await waiting
        assert await here.finish([holder]) == [None]
        with pytest.raises(Draining):
            await here.use("c")

    run(scene())
