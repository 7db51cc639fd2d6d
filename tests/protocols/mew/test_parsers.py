"""Parsing of long texts: on a thread of its own, and with a bound on the texts that wait."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from ackwise.broker import AsyncBroker
from ackwise.connect import open_store
from ackwise.core.errors import Overloaded
from ackwise.core.queries import ListQueues
from ackwise.graph.language import Parsed
from ackwise.protocols.mew import parser_thread
from ackwise.protocols.mew.aio.driver import AsyncDriver
from ackwise.protocols.mew.output_records import drop
from ackwise.protocols.mew.parser_thread import AsyncParser
from ackwise.protocols.mew.session import MewSession
from tests.patience import PATIENCE

LONG = "TICK; " * 1000


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The parser waits until the gate is open."""
    gate = threading.Event()

    def parse(text: str) -> Parsed:
        assert gate.wait(PATIENCE)
        return Parsed([], None, len(text))

    monkeypatch.setattr(parser_thread, "parse", parse)
    return gate


def test_lists_do_not_wait_for_parsers(tmp_path: Path, gate: threading.Event) -> None:
    async def scene() -> None:
        broker = await AsyncBroker.start(open_store(f"sqlite:///{tmp_path}/graph.db", graph=True), background=False)
        driver = AsyncDriver(broker)
        tasks = [asyncio.create_task(driver.drive(MewSession().run(LONG), drop)) for _ in range(24)]
        try:
            async with asyncio.timeout(PATIENCE):
                assert list(await broker.ask(ListQueues(limit=5))) == []
            assert not any(task.done() for task in tasks)
        finally:
            gate.set()
        assert await asyncio.gather(*tasks) == [True] * 24
        await broker.close()

    asyncio.run(scene())


def test_texts_above_the_parser_bound_are_refused(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    monkeypatch.setattr(parser_thread, "MOST_WAITING", 3)

    async def scene() -> None:
        parser = AsyncParser()
        tasks = [asyncio.create_task(parser.parse(LONG, caller)) for caller in "abc"]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="3 long texts"):
            await parser.parse(LONG, "d")
        tasks.pop().cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(parser.parse(LONG, "d")))
        gate.set()
        assert len(await asyncio.gather(*tasks)) == 3

    asyncio.run(scene())


def test_texts_of_one_caller_take_half_the_places(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    monkeypatch.setattr(parser_thread, "MOST_WAITING", 4)

    async def scene() -> None:
        parser = AsyncParser()
        tasks = [asyncio.create_task(parser.parse(LONG, "greedy")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="2 of your long texts"):
            await parser.parse(LONG, "greedy")
        tasks.append(asyncio.create_task(parser.parse(LONG, "modest")))
        gate.set()
        assert len(await asyncio.gather(*tasks)) == 3

    asyncio.run(scene())
