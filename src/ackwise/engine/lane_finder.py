"""Candidate lanes of a claim, longest ready first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ackwise.core.commands import Claim
from ackwise.core.ids import GroupId
from ackwise.core.lane_range import LaneRange
from ackwise.engine import catalog
from ackwise.engine.catalog import QueueRow
from ackwise.engine.turn import Turn

PAGE = 32
MOST_LANES_SEEN = 50_000
FAR = 1 << 62
MOST_WAITS = 8


class Finder:
    """Finds and locks lanes for one claim."""

    def __init__(self, turn: Turn, command: Claim, queue: QueueRow, grp: GroupId, owner: str, *, strict: bool) -> None:
        self._turn, self._session, self._now = turn, turn.session, turn.now
        self._command, self._queue, self._grp, self._owner, self._strict = command, queue, grp, owner, strict
        self.unknown: set[int] = set()
        """Lanes that the claim names and the queue does not have."""

    def candidates(self, satisfied: Callable[[], bool]) -> Iterator[tuple[int, set[int] | None]]:
        """Locked partitions with their candidate lanes (None: all lanes), until the claim is satisfied.

        Partitions that another turn holds come last. The finder waits for them only if the claim has no messages yet.
        """
        if self._command.only is not None:
            yield from self._named(self._command.only)
            return
        if self._command.partitions is not None:
            parts = [catalog.find_part(self._session, self._queue, name) for name in self._command.partitions]
            known = [part for part in parts if part is not None]
            self._session.lock_parts(sorted(known))
            yield from ((part, None) for part in known)
            return
        if self._command.owner is not None:
            rows = self._session.rows("cursors_owned", {"grp": self._grp, "owner": self._owner})
            locked = self._session.lock_parts(sorted({row[1] for row in rows}), skip=True)
            yield from ((part, None) for part in dict.fromkeys(row[1] for row in rows) if part in locked)
        for statement, where in self._searches():
            yield from self._ready(statement, where, satisfied)

    def _named(self, only: Iterable[LaneRange]) -> Iterator[tuple[int, set[int] | None]]:
        """The lanes of a claim of named messages by partition."""
        lanes: dict[int, set[int] | None] = {}
        for lane in sorted({named.lane for named in only}):
            row = self._session.row("lane_by_id", {"id": lane})
            if row is None or row[2] != self._queue.id:
                self.unknown.add(lane)
            else:
                lanes[row[1]] = (lanes.get(row[1]) or set()) | {lane}
        self._session.lock_parts(sorted(lanes))
        yield from lanes.items()

    def _searches(self) -> list[tuple[str, dict[str, int]]]:
        """Statements that find ready lanes: one for all lanes, or one per requested priority."""
        # A relaxed claim on a strict queue may take messages behind a delayed head. Such lanes are not marked ready.
        mixed = not self._strict and self._queue.order == "strict"
        where = {"grp": self._grp, "now": FAR if mixed else self._now}
        if self._command.priorities is None:
            return [("cursors_ready", where)]
        return [("cursors_ready_prio", {**where, "prio": prio}) for prio in sorted(set(self._command.priorities))]

    def _lock_free(self, parts: set[int]) -> set[int]:
        """Lock the partitions that no other turn holds, and return them."""
        return parts if self._turn.memory.alone else self._session.lock_parts(sorted(parts), skip=True)

    def _ready(
        self, statement: str, where: dict[str, int], satisfied: Callable[[], bool]
    ) -> Iterator[tuple[int, set[int]]]:
        """Ready lanes: first those that an earlier claim of this turn left over, then those that the database finds."""
        left = self._turn.ready.setdefault((statement, *where.values()), {})
        while left:
            row = next(iter(left.values()))
            del left[row[0]]
            yield row[1], {row[0]}
        skipped: list[tuple[int, set[int]]] = []
        seen = 0
        page = min(PAGE, max(4, self._command.most, self._turn.claims))
        while seen < MOST_LANES_SEEN:
            rows = self._session.rows(statement, {**where, "limit": page, "skip": seen})
            seen += len(rows)
            locked = self._lock_free({row[1] for row in rows})
            left.update((row[0], row) for row in rows if row[1] in locked)
            skipped += [(row[1], {row[0]}) for row in rows if row[1] not in locked]
            while left:
                row = next(iter(left.values()))
                del left[row[0]]
                yield row[1], {row[0]}
            if len(rows) < page:
                break
            page = PAGE
        for part, lanes in sorted(skipped[:MOST_WAITS], key=lambda s: s[0]):
            if satisfied():
                return
            self._session.lock_parts([part])
            yield part, lanes
