"""What runs beside the callers: sweeps, checkpoints, heartbeats, and watching for other processes' commits."""

from __future__ import annotations

import logging

from ackwise.broker.pulse import BEAT_EVERY
from ackwise.core.commands import Beat, Command, Sweep
from ackwise.core.errors import AckwiseError

log = logging.getLogger("ackwise")

SWEEP_EVERY = 1.0
TIDY_EVERY = 1.5
WATCH_EVERY = 0.05
LOOK_EVERY = 30.0
"""A net below wake-ups and notifications: one parked claim of each kind looks again, in case one was missed."""
CLOSE_PATIENCE = 10.0
"""How long closing waits for claims under way, so that what they were granted goes back."""
MOST_SWEEPS_IN_A_ROW = 20
PURGE_ROWS = 20_000
"""The most rows that one turn of a purge removes. The purge's time limit usually ends the turn earlier."""
PURGE = Sweep(duties=("purge", "shrink"), limit=PURGE_ROWS)


class Rota:
    """Decides which duty is next, by a clock of its own; whoever owns it sends the commands."""

    def __init__(self, started: float, instance: str | None = None) -> None:
        """With an `instance` the rota also sends the heartbeats of that instance."""
        self._instance = instance
        self._sweep_at = started
        self._tidy_at = started
        self._purge_at = started
        self._beat_at = started if instance is not None else float("inf")

    def swept(self, command: Command, took: float, now: float, *, more: bool) -> None:
        """A purge with more to do waits as long as it took: other commands have the writer half of the time."""
        if command is PURGE:
            self._purge_at = now + (took if more else TIDY_EVERY)

    def due(self, now: float) -> list[Command]:
        """Commands to send now. The often-needed duties go every second, the slow ones every few."""
        commands: list[Command] = []
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_EVERY
            commands.append(Sweep(duties=("expire", "promote", "max_wait")))
            commands.append(Sweep(duties=("graph",)))
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

    def wait(self, now: float) -> float:
        return max(0.0, min(self._sweep_at, self._tidy_at, self._purge_at, self._beat_at) - now)


def in_a_row(command: Command) -> int:
    """How often a duty with more to do runs in a row. A purge runs once and waits: see `Rota.swept`."""
    return 1 if command is PURGE else MOST_SWEEPS_IN_A_ROW


def complain(duty: str, problem: Exception) -> None:
    """A duty that fails is tried again; it is said once per failure, never raised into a caller."""
    level = logging.WARNING if isinstance(problem, AckwiseError) else logging.ERROR
    log.log(level, "%s failed and will be tried again: %s", duty, problem)
