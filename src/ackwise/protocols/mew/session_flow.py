"""Flow: a generator that yields requests and lines, so that sessions need no I/O of their own."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import msgspec

from ackwise.core.commands import Command
from ackwise.core.queries import Query
from ackwise.graph import errors as graph_errors
from ackwise.graph.commands import FindGraph, RunGraph, StepResults
from ackwise.graph.errors import GraphError, MatchFirst, Outrun, Postponed
from ackwise.protocols.mew.output_records import Line


class Now(msgspec.Struct):
    """Request for the broker's wall clock."""


class Parse(msgspec.Struct):
    """Request to parse a long text outside the event loop."""

    text: str
    caller: str = ""


class Pause(msgspec.Struct):
    """Request to sleep."""

    seconds: float = 0.05


T = TypeVar("T")
Request = Command | Query | Now | Parse | Pause
"""A driver answers a request by sending its result into the flow, or by throwing its error."""
Flow = Generator[Request | Line, Any, T]
"""Yields requests and lines. The drivers in `aio` and `sync` run the same flow."""


def send_run(command: RunGraph, blocked_for: float, caller: str) -> Flow[StepResults]:
    """Send a command, and send it again after errors that a session hides from the user.

    - A watch with `on_full: block` has a full buffer: wait up to `blocked_for` seconds for room.
    - The turn has no time for the command: send it again.
    - The turn has no time to match the pattern: ask a reader for the matches first.
    - Other commands changed these matches: match again, once.
    - The statement held the writer too long: send it again, once, because the machine may have been busy.
    """
    retries = _Retries(blocked_for)
    while True:
        try:
            ran: StepResults = yield command
            return ran
        except (MatchFirst, Outrun) as problem:
            retries.check_match(problem)
            matches = yield FindGraph(statement=command.steps[0].statement, limits=command.limits, caller=caller)
            command = msgspec.structs.replace(command, found=matches)
        except GraphError as problem:
            pause = retries.pause_after(problem)
            if pause is None:
                raise
            if pause.seconds:
                yield pause


class _Retries:
    """Decides how often a command is sent again."""

    def __init__(self, blocked_for: float) -> None:
        self._blocked_for = blocked_for
        self._may_match_again = self._may_overrun = True

    def check_match(self, problem: MatchFirst | Outrun) -> None:
        """Raise `conflict` if other commands changed the matches for the second time."""
        if isinstance(problem, Outrun):
            if not self._may_match_again:
                raise graph_errors.conflict() from None
            self._may_match_again = False

    def pause_after(self, problem: GraphError) -> Pause | None:
        """The pause before the command is sent again. None if it is not."""
        if isinstance(problem, Postponed):
            return Pause(0)
        if self._may_overrun and problem.details.get("limit") == "writer":
            self._may_overrun = False
            return Pause(0)
        if problem.name != "BLOCKED" or self._blocked_for <= 0:
            return None
        pause = Pause()
        self._blocked_for -= pause.seconds
        return pause
