"""MEW sessions of dashboard pages: answers within bounds, events, the end of the page, texts that only read."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ackwise.broker import AsyncBroker
from ackwise.connect import open_store
from ackwise.core.errors import BadInput
from ackwise.graph.overview import GraphStats, ListWatches
from ackwise.protocols.mew import page_sessions
from ackwise.protocols.mew.http import MewServer
from ackwise.protocols.mew.page_sessions import PageAnswer, PageSessions
from tests.patience import PATIENCE

PAGE = f"page_{'a' * 32}"
JOBS = "node Job { title: String = 'mail', size: Int = 1 }".replace("'", '"')


class Pages:
    """The sessions of a store's pages, with short calls."""

    def __init__(self, broker: AsyncBroker) -> None:
        self.broker = broker
        self.sessions = PageSessions(MewServer(broker))

    async def run(self, text: str, *, reads_only: bool = False, events: bool = False) -> PageAnswer:
        return await self.sessions.run(PAGE, text, client=("10.0.0.1", 5), reads_only=reads_only, events=events)

    async def watches(self) -> int:
        return len(await self.broker.ask(ListWatches()))

    async def until(self, condition: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE
        while not await condition():
            assert time.monotonic() < end
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def pages(folder: Path) -> AsyncIterator[Pages]:
    store = open_store(f"sqlite:///{folder}/pages.db?durability=normal", graph=True)
    broker = await AsyncBroker.start(store)
    try:
        yield Pages(broker)
    finally:
        await broker.close()


def kinds(answer: PageAnswer) -> list[str]:
    return [line["kind"] for line in answer.lines]


def test_rows_values_and_lines_of_an_answer_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_sessions, "ROWS", 2)
    monkeypatch.setattr(page_sessions, "LINES", 5)
    monkeypatch.setattr(page_sessions, "VALUE", 10)

    async def run() -> None:
        async with pages(tmp_path) as on:
            await on.run(JOBS + 'SPAWN a: Job { title = "0123456789abc" } SPAWN b: Job SPAWN c: Job')
            answer = await on.run("MATCH j: Job RETURN j.title, j.size, j ORDER BY j.title " * 6)
        assert (len(answer.lines), answer.lines_left, answer.fine) == (5, 1, True)
        line = answer.lines[0]
        assert [row[:2] for row in line["rows"]] == [["0123456789…", 1], ["mail", 1]]
        assert [len(row[2]) for row in line["rows"]] == [11, 11]
        assert line["rows_left"] == 1

    asyncio.run(run())


def test_error_of_a_text_has_line_and_column(tmp_path: Path) -> None:
    async def run() -> None:
        async with pages(tmp_path) as on:
            answer = await on.run(JOBS + "\nSPAWN a: Jib")
        assert (kinds(answer), answer.fine) == (["result", "error"], False)
        assert (answer.lines[1]["line"], answer.lines[1]["column"]) == (2, 7)

    asyncio.run(run())


def test_stream_has_the_events_and_ends_the_session(tmp_path: Path) -> None:
    async def run() -> None:
        async with pages(tmp_path) as on:
            answer = await on.run(JOBS + "w = WATCH j: Job [mode: consume] RETURN j.title")
            assert answer.watches
            stream = on.sessions.events(PAGE, client=("10.0.0.1", 5))
            events = (event async for event in stream if event is not None)
            assert (await anext(events))["type"] == "initial"
            await on.run("SPAWN a: Job")
            event = await anext(events)
            assert (event["type"], event["match"]) == ("consumed", '{"j.title":"mail"}')
            assert (await on.broker.ask(GraphStats())).pending.count == 1
            await stream.aclose()

            async def over() -> bool:
                return not await on.watches() and not (await on.broker.ask(GraphStats())).pending.count

            await on.until(over)

    asyncio.run(run())


def test_session_without_a_stream_ends_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_sessions, "ORPHANED", 0.05)

    async def run() -> None:
        async with pages(tmp_path) as on:
            answer = await on.run(JOBS + "w = WATCH j: Job RETURN j SPAWN a: Job", events=True)
            assert [line.get("type") for line in answer.lines if line["kind"] == "event"] == ["initial", "added"]
            assert await on.watches() == 1

            async def over() -> bool:
                return not await on.watches()

            await on.until(over)

    asyncio.run(run())


def test_stream_without_events_beats_and_keeps_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_sessions, "ORPHANED", 0.02)
    monkeypatch.setattr(page_sessions, "BEAT", 0.02)

    async def run() -> None:
        async with pages(tmp_path) as on:
            await on.run(JOBS + "w = WATCH j: Job [initial: none] RETURN j")
            stream = on.sessions.events(PAGE, client=("10.0.0.1", 5))
            assert [await anext(stream) for _ in range(5)] == [None] * 5
            assert await on.watches() == 1
            await stream.aclose()

    asyncio.run(run())


def test_stream_of_an_unknown_page_is_empty(tmp_path: Path) -> None:
    async def run() -> None:
        async with pages(tmp_path) as on:
            assert [event async for event in on.sessions.events(PAGE, client=("10.0.0.1", 5))] == []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SPAWN a: Job", "SPAWN"),
        ("MATCH j: Job RETURN j KILL #a", "KILL"),
        ("MATCH j: Job SET j.size = 2", "MATCH"),
        ("w = WATCH j: Job RETURN j", "WATCH"),
        ("BEGIN", "BEGIN"),
        ("TICK", "TICK"),
        ("node Other {}", "NODE"),
    ],
)
def test_reading_page_refuses_statements_that_change(tmp_path: Path, text: str, word: str) -> None:
    async def run() -> None:
        async with pages(tmp_path) as on:
            await on.run(JOBS)
            tick = (await on.broker.ask(GraphStats())).tick
            answer = await on.run(text, reads_only=True)
            assert (kinds(answer), answer.lines[0]["code"], answer.fine) == (["error"], "read_only", False)
            assert answer.lines[0]["message"].startswith(f"{word} is refused")
            assert (await on.broker.ask(GraphStats())).tick == tick

    asyncio.run(run())


def test_reading_page_matches_and_leaves_no_session(tmp_path: Path) -> None:
    async def run() -> None:
        async with pages(tmp_path) as on:
            await on.run(JOBS + "SPAWN a: Job")
            count = "MATCH s: _Session RETURN COUNT(s) AS n"
            before = (await on.run(count, reads_only=True)).lines[0]["rows"]
            answer = await on.run("MATCH j: Job RETURN j.title " + count, reads_only=True)
            assert [line["rows"] for line in answer.lines] == [[["mail"]], before]
            assert not answer.watches

    asyncio.run(run())


@pytest.mark.parametrize("page", ["", "session_1", "page_" + "g" * 32, "page_" + "a" * 33])
def test_session_that_is_not_a_page_is_refused(tmp_path: Path, page: str) -> None:
    async def run() -> None:
        async with pages(tmp_path) as on:
            with pytest.raises(BadInput, match="load the page again"):
                await on.sessions.run(page, "MATCH s: _Session RETURN s", client=("10.0.0.1", 5), reads_only=True)

    asyncio.run(run())
