"""Schedule of sweeps, heartbeats, checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ackwise.broker.write_health import BEAT_EVERY
from ackwise.core.commands import Beat, Command, Sweep
from ackwise.core.errors import AckwiseError

log = logging.getLogger("ackwise")

SWEEP_EVERY = 1.0
TIDY_EVERY = 1.5
WATCH_EVERY = 0.05
SCOUT_EVERY = 30.0
"""Seconds between two retries of one parked claim of each kind. The retry finds messages whose wake-up was missed."""
CLOSE_PATIENCE = 10.0
"""Seconds that closing waits for running claims, so that they can release what they were granted."""
MOST_SWEEPS_IN_A_ROW = 20
PURGE_ROWS = 20_000
"""The most rows that one turn of a purge removes. The purge's time limit usually ends the turn earlier."""
PURGE = Sweep(duties=("purge", "shrink"), limit=PURGE_ROWS)


class Schedule:
    """Decides which maintenance commands are due. The broker passes the time and sends the commands."""

    def __init__(self, started: float, duties: Iterable[str], instance: str | None = None) -> None:
        """`duties` are those of extensions. With an `instance` the schedule also contains that broker's heartbeats."""
        self._duties, self._instance = duties, instance
        self._sweep_at = started
        self._tidy_at = started
        self._purge_at = started
        self._beat_at = started if instance is not None else float("inf")

    def record_run(self, command: Command, took: float, now: float, *, more: bool) -> None:
        """Record how long a command took.

        A purge with more to do then waits for the same time, so that other commands get the writer half of the time.
        """
        if command is PURGE:
            self._purge_at = now + (took if more else TIDY_EVERY)

    def due(self, now: float) -> list[Command]:
        """Commands to send now. Expiry and promotion run every second, retention and purge less often."""
        commands: list[Command] = []
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_EVERY
            commands.append(Sweep(duties=("expire", "promote", "max_wait")))
            commands += [Sweep(duties=(duty,)) for duty in self._duties]
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_EVERY
            commands.append(Sweep(duties=("retain", "forget")))
        if now >= self._purge_at:
            self._purge_at = now + TIDY_EVERY
            commands.append(PURGE)
        if self._instance is not None and now >= self._beat_at:
            self._beat_at = now + BEAT_EVERY
            commands.insert(0, Beat(instance=self._instance))
        return commands

    def seconds_until_due(self, now: float) -> float:
        return max(0.0, min(self._sweep_at, self._tidy_at, self._purge_at, self._beat_at) - now)


def most_in_a_row(command: Command) -> int:
    """How often a command with more to do runs in a row. A purge runs once and waits: see `Schedule.record_run`."""
    return 1 if command is PURGE else MOST_SWEEPS_IN_A_ROW


def log_failure(duty: str, problem: Exception) -> None:
    """Log a background failure. The broker tries the duty again and raises nothing into a caller."""
    level = logging.WARNING if isinstance(problem, AckwiseError) else logging.ERROR
    log.log(level, "%s failed and will be tried again: %s", duty, problem)
