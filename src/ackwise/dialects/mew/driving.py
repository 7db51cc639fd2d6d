"""Doing what a talk wishes, on an event loop or in a thread, and passing on what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ackwise.broker import AsyncBroker, Broker
from ackwise.core.commands import Command
from ackwise.core.errors import AckwiseError
from ackwise.core.queries import Query
from ackwise.dialects.mew.lines import Line
from ackwise.dialects.mew.talk import Now, Pause, Talking

T = TypeVar("T")
Emit = Callable[[Line], object]


class AsyncDriver:
    def __init__(self, broker: AsyncBroker) -> None:
        self.broker = broker

    async def drive(self, talk: Talking[T], emit: Emit) -> T:
        answer: Any = None
        problem: AckwiseError | None = None
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
                elif isinstance(wish, Pause):
                    await asyncio.sleep(wish.seconds)
                else:
                    emit(wish)
            except AckwiseError as refusal:
                problem = refusal


class Driver:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def drive(self, talk: Talking[T], emit: Emit) -> T:
        answer: Any = None
        problem: AckwiseError | None = None
        while True:
            try:
                wish = talk.send(answer) if problem is None else talk.throw(problem)
            except StopIteration as stop:
                done: T = stop.value
                return done
            answer = problem = None
            try:
                if isinstance(wish, Command):
                    answer = self.broker.send(wish)
                elif isinstance(wish, Query):
                    answer = self.broker.ask(wish)
                elif isinstance(wish, Now):
                    answer = self.broker.now()
                elif isinstance(wish, Pause):
                    time.sleep(wish.seconds)
                else:
                    emit(wish)
            except AckwiseError as refusal:
                problem = refusal


def drop(line: Line) -> None:
    """For talks that say nothing of interest."""
