"""Background flows: maintenance duties, and the watch for commits of other processes."""

from __future__ import annotations

import time

from ackwise.broker.broker_state import BrokerState
from ackwise.broker.maintenance import WATCH_EVERY, Schedule, log_failure, most_in_a_row
from ackwise.broker.steps import Flow, Maintain, Sleep, Submit
from ackwise.broker.turn_queue import Submission
from ackwise.core.commands import Command
from ackwise.core.errors import AckwiseError


def run_duties(state: BrokerState, schedule: Schedule) -> Flow[None]:
    """Send the commands of the schedule when they are due, and let the store maintain itself."""
    while not (yield Sleep(schedule.seconds_until_due(time.monotonic()))):
        for command in schedule.due(time.monotonic()):
            yield from _run_duty(state, schedule, command)
        try:
            yield Maintain()
        except AckwiseError as problem:
            log_failure("maintenance", problem)


def _run_duty(state: BrokerState, schedule: Schedule, command: Command) -> Flow[None]:
    """Send a command, and send it again while it has more to do."""
    started, more = time.monotonic(), False
    failure: Exception | None = None
    try:
        for _ in range(most_in_a_row(command)):
            submission: Submission = yield Submit([command])
            more = getattr(submission.answers()[0], "more", False)
            if not more:
                break
    except Exception as problem:
        failure = problem
        if not state.closed:
            log_failure(type(command).__name__.lower(), problem)
    state.duties.ran(command, time.monotonic() - started, failure)
    schedule.record_run(command, time.monotonic() - started, time.monotonic(), more=more)


def watch_store(state: BrokerState) -> Flow[None]:
    """Check often whether another process committed, but only while claims or listeners wait."""
    while not (yield Sleep(WATCH_EVERY if state.has_waiters else 5 * WATCH_EVERY)):
        try:
            if state.has_waiters:
                if state.store.changed():
                    state.retry_parked()
                state.retry_scouts()
        except Exception as problem:
            if not state.closed:
                log_failure("watching for changes", problem)
