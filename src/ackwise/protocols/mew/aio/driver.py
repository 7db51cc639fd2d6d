"""Driver: executes the requests of a session's flow on a broker and emits its lines (sync twin generated)."""

from __future__ import annotations

from asyncio import sleep
from typing import Any, TypeVar

from ackwise.broker import AsyncBroker
from ackwise.core.commands import Command
from ackwise.core.errors import AckwiseError
from ackwise.core.queries import Query
from ackwise.protocols.mew.output_records import Emit
from ackwise.protocols.mew.parser_thread import AsyncParser
from ackwise.protocols.mew.session_flow import Flow, Now, Parse, Pause, Request

T = TypeVar("T")
LINES_AT_ONCE = 50
"""After this many lines the driver yields to the event loop: some statements wait for nothing."""


class AsyncDriver:
    """Drives the flows of any number of sessions."""

    def __init__(self, broker: AsyncBroker, parser: AsyncParser | None = None) -> None:
        """Drivers with the same `parser` share its waiting places."""
        self.broker, self.parser = broker, parser or AsyncParser()

    async def drive(self, flow: Flow[T], emit: Emit) -> T:
        """Run a flow to its end and return its result. The flow gets each `AckwiseError` of its requests."""
        answer: Any = None
        problem: AckwiseError | None = None
        lines = 0
        while True:
            try:
                item = flow.send(answer) if problem is None else flow.throw(problem)
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                answer = problem = None  # the error refers to this frame
            try:
                if isinstance(item, Request):
                    answer = await self.execute(item)
                    continue
                emit(item)
                lines += 1
                if not lines % LINES_AT_ONCE:
                    await sleep(0)
            except AckwiseError as refusal:
                problem = refusal

    async def execute(self, request: Request) -> Any:
        """Answer one request of a flow."""
        match request:
            case Command():
                return await self.broker.send(request)
            case Query():
                return await self.broker.ask(request)
            case Now():
                return self.broker.wall()
            case Parse(text=text, caller=caller):
                return await self.parser.parse(text, caller)
            case Pause(seconds=seconds):
                return await sleep(seconds)
