"""Outcomes that a handler chooses for single messages, and the end of a handler's function."""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ackwise.client.settlements import settlement_for
from ackwise.core.errors import AckwiseError, BadInput
from ackwise.core.settlement import Outcome
from ackwise.fluent.messages import Message, outcome_of, target_of

log = logging.getLogger("ackwise.fluent")

ChosenOutcome = str | Exception
"""A status (completed, failed, retry, dlq) or an exception. Any exception but `Retry` and `Reject` is a failure."""
MessageOutcomes = list[tuple[Message, Outcome | Exception]]


class Partial(Exception):
    """Raise this in a handler of lists if only some messages failed. The other messages are acked.

    `failed` is the failed messages, or a mapping from a failed message to its status or exception.
    """

    def __init__(self, failed: Mapping[Message, ChosenOutcome] | Iterable[Message]) -> None:
        self.failed = dict(failed) if isinstance(failed, Mapping) else dict.fromkeys(failed, "failed")
        super().__init__(f"{len(self.failed)} messages of a batch failed")


def chosen_outcomes(messages: Sequence[Message], chosen: Mapping[Any, ChosenOutcome]) -> MessageOutcomes:
    """The outcomes that a handler chose for some of its messages. Raises `BadInput` for a message not in its list."""
    known = set(messages)
    for message in chosen:
        if message not in known:
            raise BadInput(f"a handler of lists chooses outcomes for the messages of its list, not for {message!r}")
        target_of(message)
    return [(message, _checked_outcome(message, chosen[message])) for message in messages if message in chosen]


def _checked_outcome(message: Message, chosen: ChosenOutcome) -> Outcome | Exception:
    """The chosen outcome, checked. An invalid one, such as a negative delay, becomes a failure of this message."""
    try:
        outcome = chosen if isinstance(chosen, Exception) else outcome_of({"status": chosen})
        settlement_for(message.delivery.selector, outcome)
    except BadInput as problem:
        log.warning("invalid outcome for %r: %s", message, problem)
        return problem
    return outcome


def failure_outcomes(messages: Sequence[Message], problem: Exception) -> MessageOutcomes:
    """The outcome of each message after the handler of the list raised `problem`."""
    if not isinstance(problem, Partial):
        return [(message, _checked_outcome(message, problem)) for message in messages]
    try:
        return chosen_outcomes(messages, {**dict.fromkeys(messages, "completed"), **problem.failed})
    except AckwiseError as invalid:
        # The `Partial` is invalid, so no message counts as a success.
        return [(message, invalid) for message in messages]


class FunctionEnd:
    """Notes when a function that runs in a thread returns: it may outlive the cancelled task that awaits it."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._over.set()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a plain function: `over` is True after the function has returned.

        A coroutine function needs no wrapper, because it ends when its task is cancelled.
        """
        if inspect.iscoroutinefunction(function):
            return function
        over = self._over = threading.Event()

        @functools.wraps(function)
        def wrapped(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            finally:
                over.set()

        return wrapped
