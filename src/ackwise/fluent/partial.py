"""Each message of a list with an outcome of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ackwise.client.settling import asked
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.settlement import Outcome
from ackwise.fluent.messages import Message, outcome_of, target_of

log = logging.getLogger("ackwise.fluent")

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
    return [(one, _ask(one, chosen[one])) for one in messages if one in chosen]


def _ask(message: Message, chosen: Chosen) -> Outcome | Exception:
    """What makes no sense, such as a negative delay, is a failure of that message: the others have their outcomes."""
    try:
        ask = chosen if isinstance(chosen, Exception) else outcome_of({"status": chosen})
        asked(message.delivery.selector, ask)
    except BadInput as problem:
        log.warning("an outcome that is none was chosen for %r: %s", message, problem)
        return problem
    return ask


def failures_of(messages: Sequence[Message], problem: Exception) -> Asks:
    """What an exception means for each message of those that were handled together."""
    if not isinstance(problem, Partial):
        return [(one, _ask(one, problem)) for one in messages]
    try:
        return asks_of(messages, {**dict.fromkeys(messages, "completed"), **problem.failed})
    except AckwiseError as nonsense:
        # Nobody knows what was meant: nothing of it is a success.
        return [(one, nonsense) for one in messages]
