"""Doing what a talk wishes, and passing on what it says."""

from __future__ import annotations

from asyncio import sleep
from typing import Any, TypeVar

from ackwise.broker import AsyncBroker
from ackwise.core.commands import Command
from ackwise.core.errors import AckwiseError
from ackwise.core.queries import Query
from ackwise.dialects.mew.lines import Emit
from ackwise.dialects.mew.parsers import AsyncParser
from ackwise.dialects.mew.talk import Now, Parse, Pause, Talking

T = TypeVar("T")
LINES_AT_ONCE = 50
"""After this many lines, others on the event loop get their turn: some statements wait for nothing."""


class AsyncDriver:
    def __init__(self, broker: AsyncBroker) -> None:
        self.broker, self._parser = broker, AsyncParser()

    async def drive(self, talk: Talking[T], emit: Emit) -> T:
        answer: Any = None
        problem: AckwiseError | None = None
        lines = 0
        while True:
            try:
                wish = talk.send(answer) if problem is None else talk.throw(problem)
            except StopIteration as stop:
                done: T = stop.value
                return done
            answer = problem = None
            try:
                if isinstance(wish, Command):
                    answer = await self.broker.send(wish)
                elif isinstance(wish, Query):
                    answer = await self.broker.ask(wish)
                elif isinstance(wish, Now):
                    answer = self.broker.now()
                elif isinstance(wish, Parse):
                    answer = await self._parser.parse(wish.text)
                elif isinstance(wish, Pause):
                    await sleep(wish.seconds)
                else:
                    emit(wish)
                    lines += 1
                    if not lines % LINES_AT_ONCE:
                        await sleep(0)
            except AckwiseError as refusal:
                problem = refusal
