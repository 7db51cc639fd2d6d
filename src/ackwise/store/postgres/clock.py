"""Anchored clock of a database: the database's clock plus a shift that the brokers agree on."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ackwise.clock import boottime
from ackwise.core.validation import MICROS
from ackwise.store.clock_anchor import Measurement, StepDetector
from ackwise.store.postgres.connection import Database
from ackwise.store.postgres.session import PostgresSession

log = logging.getLogger("ackwise.store")

IN_LINE = 10 * MICROS
"""A broker with a heartbeat this recent follows the database's clock. Brokers send one every 2.5 seconds."""
_TRIES = 5


class DatabaseClock:
    """The anchored clock, computed from its value in the last turn.

    Each turn reads the database's clock. If that clock stepped against this machine's time since boot, the broker that
    sees it first changes the shift for all brokers, so that the anchored clock continues.
    """

    def __init__(self, database: Database, instance: str, steady: Callable[[], int] = boottime) -> None:
        self._database, self._instance, self._steady = database, instance, steady
        self._detector = StepDetector()
        self._offset = self._shift = 0

    def now(self) -> int:
        return self._steady() + self._offset

    def shift(self) -> int:
        return self._shift

    def now_and_shift(self) -> tuple[int, int]:
        return self._steady() + self._offset, self._shift

    def read(self, session: PostgresSession) -> tuple[int, int]:
        """The anchored instant of the database itself, and its shift. It costs a round trip."""
        first = self._detector.last is None
        for _ in range(_TRIES):
            measured = self._measure(session)
            jump = self._jump_at_open(session, measured) if first else self._detector.jump(measured)
            if not jump or not self._correct(session, measured, jump):
                break
        self._detector.accept(measured)
        self._offset, self._shift = measured.lowest, measured.shift
        return measured.anchored, measured.shift

    def _measure(self, session: PostgresSession) -> Measurement:
        before = self._steady()
        wall, shift, steps = session.rows("clock")[0]
        return Measurement(wall, shift, steps, before, self._steady())

    def _jump_at_open(self, session: PostgresSession, measured: Measurement) -> int:
        """How far the clock went back behind the last heartbeat: it never goes back while a store is closed."""
        last = session.rows("instances_last")[0][0]
        return 0 if last is None or last <= measured.anchored + MICROS else measured.anchored - last

    def _correct(self, session: PostgresSession, measured: Measurement, jump: int) -> bool:
        """Take a jump back. False if this machine stood still: then the database's clock is right."""
        if jump > 0 and self._others_in_line(session, measured):
            return False
        shift = measured.shift - jump
        # Its own connection: the correction must not wait for the end of this turn.
        with self._database.connect() as connection:
            won = PostgresSession(connection).run("anchor_step", {"shift": shift, "steps": measured.steps})
        if won:
            log.warning(
                "the clock of %s stepped by %+.1f s; leases and retry delays keep their time",
                self._database.where,
                jump / MICROS,
            )
        return True

    def _others_in_line(self, session: PostgresSession, measured: Measurement) -> bool:
        """Whether a broker that ran before the jump follows the database's clock without a jump."""
        last = self._detector.last
        if last is None:
            return False
        heard = session.rows("instances_since", {"id": self._instance, "at": last.anchored})[0][0]
        return heard is not None and heard > measured.anchored - IN_LINE
