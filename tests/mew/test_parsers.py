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
from ackwise.dialects.mew import parsers
from ackwise.dialects.mew.aio.driving import AsyncDriver
from ackwise.dialects.mew.language import Parsed
from ackwise.dialects.mew.lines import drop
from ackwise.dialects.mew.parsers import AsyncParser
from ackwise.dialects.mew.talk import Session

LONG = "TICK; " * 1000


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The parser waits until the gate is open."""
    gate = threading.Event()

    def parse(text: str) -> Parsed:
        assert gate.wait(30)
        return Parsed([], None, len(text))

    monkeypatch.setattr(parsers, "parse", parse)
    return gate


def test_lists_do_not_wait_for_parsers(tmp_path: Path, gate: threading.Event) -> None:
    async def scene() -> None:
        broker = await AsyncBroker.start(open_store(f"sqlite:///{tmp_path}/graph.db"), background=False)
        driver = AsyncDriver(broker)
        tasks = [asyncio.create_task(driver.drive(Session().run(LONG), drop)) for _ in range(24)]
        try:
            async with asyncio.timeout(30):
                assert list(await broker.ask(ListQueues(limit=5))) == []
            assert not any(task.done() for task in tasks)
        finally:
            gate.set()
        assert await asyncio.gather(*tasks) == [True] * 24
        await broker.close()

    asyncio.run(scene())


def test_too_many_texts_to_parse_are_refused(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    monkeypatch.setattr(parsers, "MOST_WAITING", 3)

    async def scene() -> None:
        parser = AsyncParser()
        tasks = [asyncio.create_task(parser.parse(LONG)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="3 long texts"):
            await parser.parse(LONG)
        tasks.pop().cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(parser.parse(LONG)))
        gate.set()
        assert len(await asyncio.gather(*tasks)) == 3

    asyncio.run(scene())
