"""Who waits how long, when commands that shared a turn are run one by one because somebody else holds a lock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import errors as pg

from ackwise.core.commands import Command
from ackwise.core.errors import StoreLocked
from ackwise.store.postgres.footprint import Footprint

SHARE = 0.5
"""All together wait about this much of the time that a lock may take: they have waited that long once already."""
LEAST = 0.01

Place = tuple[object, ...]


class Queueing:
    """Whoever names only what another command of the turn waited for in vain is refused without waiting."""

    def __init__(self, busy_timeout: float) -> None:
        self._left = SHARE * busy_timeout
        self._locked: dict[Place, pg.LockNotAvailable] = {}

    @contextmanager
    def turn(self, command: Command) -> Iterator[float]:
        """Run one command inside; what comes out is how long it may wait for each lock."""
        places = _places(command)
        for place in places & self._locked.keys():
            raise StoreLocked(f"{(StoreLocked.__doc__ or '').strip()} ({self._locked[place]})")
        started = time.monotonic()
        try:
            yield max(LEAST, self._left / 4)
        except pg.LockNotAvailable as problem:
            self._left -= time.monotonic() - started
            if len(places) == 1:
                self._locked[places.pop()] = problem
            raise


def _places(command: Command) -> set[Place]:
    """The partitions, lanes, leases and so on that a command names."""
    named = Footprint([command])
    return {
        *(("named", queue, part) for queue, part, _ in named.pushed | named.claimed),
        *(("group", *group) for group in named.groups if not named.claimed),
        *(("queue", queue) for queue in named.queues | named.whole_queues),
        *(("lane", lane) for lane in named.lanes),
        *(("lease", lease) for lease in named.leases | named.pieces if not named.lanes),
        *(("claim", *key) for key in named.keys),
        *(("part", uuid) for uuid in named.parts),
        *(("dead", uuid) for uuid in named.dead),
    }
