# Generated from ../aio/driving.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Doing what a talk wishes, and passing on what it says."""

from __future__ import annotations

from time import sleep
from typing import Any, TypeVar

from ackwise.broker import Broker
from ackwise.core.commands import Command
from ackwise.core.errors import AckwiseError
from ackwise.core.queries import Query
from ackwise.dialects.mew.lines import Emit
from ackwise.dialects.mew.parsers import Parser
from ackwise.dialects.mew.talk import Now, Parse, Pause, Talking

T = TypeVar("T")
LINES_AT_ONCE = 50
"""After this many lines, others on the event loop get their turn: some statements wait for nothing."""


class Driver:
    def __init__(self, broker: Broker) -> None:
        self.broker, self._parser = broker, Parser()

    def drive(self, talk: Talking[T], emit: Emit) -> T:
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
                    answer = self.broker.send(wish)
                elif isinstance(wish, Query):
                    answer = self.broker.ask(wish)
                elif isinstance(wish, Now):
                    answer = self.broker.now()
                elif isinstance(wish, Parse):
                    answer = self._parser.parse(wish.text)
                elif isinstance(wish, Pause):
                    sleep(wish.seconds)
                else:
                    emit(wish)
                    lines += 1
                    if not lines % LINES_AT_ONCE:
                        sleep(0)
            except AckwiseError as refusal:
                problem = refusal
