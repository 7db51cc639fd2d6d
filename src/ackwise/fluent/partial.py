"""Each message of a list with an outcome of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ackwise.core.errors import BadInput
from ackwise.core.settlement import Outcome
from ackwise.fluent.messages import Message, outcome_of, target_of

Chosen = str | Exception
"""A status (completed, failed, retry, dlq) or an exception: `Retry` and `Reject` choose, any other is a failure."""
Asks = list[tuple[Message, Outcome | Exception]]


class Partial(Exception):
    """Raised by a handler of lists: these messages have failed, each in its way, and the others are done."""

    def __init__(self, failed: Mapping[Message, Chosen] | Iterable[Message]) -> None:
        self.failed = dict(failed) if isinstance(failed, Mapping) else dict.fromkeys(failed, "failed")
        super().__init__(f"{len(self.failed)} messages of a batch failed")


def asks_of(messages: Sequence[Message], chosen: Mapping[Any, Chosen]) -> Asks:
    """What a handler has chosen for some of its messages."""
    known = set(messages)
    for one in chosen:
        if one not in known:
            raise BadInput(f"a handler of lists chooses outcomes for the messages of its list, not for {one!r}")
        target_of(one)
    return [
        (one, what if isinstance(what := chosen[one], Exception) else outcome_of({"status": what}))
        for one in messages
        if one in chosen
    ]


def failures_of(messages: Sequence[Message], problem: Exception) -> Asks:
    """What an exception means for each message of those that were handled together."""
    if not isinstance(problem, Partial):
        return [(one, problem) for one in messages]
    return asks_of(messages, {**dict.fromkeys(messages, "completed"), **problem.failed})
