"""Transaction ids in one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ackwise.engine.ports import Session

CHUNK = 10_000


class TableDedupe:
    """Keys of a turn stay in memory. The last statement of the turn inserts them together."""

    asks = True

    def __init__(self, session: Session) -> None:
        self._session = session
        self.begin()

    def begin(self) -> None:
        self._looked_up: dict[int, list[int]] = {}
        self._forget_turn()

    def _forget_turn(self) -> None:
        self._hashes: list[int] = []
        self._places: list[int] = []
        self._turn: dict[int, tuple[int, ...]] = {}
        self._mark = 0

    def expect(self, hashes: list[int]) -> None:
        """Look up all these keys with one statement. The locks of the turn keep the answer valid."""
        self._looked_up.update((h, []) for h in hashes)
        for h, pos in self._used(hashes):
            self._looked_up[h].append(pos)

    def _used(self, hashes: list[int]) -> Iterator[tuple[int, int]]:
        """Hashes and the places (message positions) where they were used, oldest first."""
        rows = self._session.rows("dedupe_find", {"hashes": _array(sorted(set(hashes)))})
        rows.sort(key=lambda row: (row[2], row[1]))
        return ((h, pos) for h, pos, _ in rows)

    def find(self, hashes: list[int]) -> dict[int, list[int]]:
        others = [h for h in hashes if h not in self._looked_up]
        matches = {h: list(places) for h in hashes if (places := self._looked_up.get(h))}
        if others:
            for h, pos in self._used(others):
                matches.setdefault(h, []).append(pos)
        if self._turn:
            for h in set(hashes).intersection(self._turn):
                matches[h] = [*matches.get(h, ()), *self._turn[h]]
        return matches

    def add(self, hashes: list[int], place: int) -> None:
        self._remember(hashes, list(range(place, place + len(hashes))))

    def _remember(self, hashes: list[int], places: list[int]) -> None:
        self._hashes += hashes
        self._places += places
        new = dict(zip(hashes, zip(places), strict=True))
        if len(new) == len(hashes) and self._turn.keys().isdisjoint(new):
            self._turn |= new
            return
        for h, pos in zip(hashes, places, strict=True):
            self._turn[h] = (*self._turn.get(h, ()), pos)

    def mark(self) -> None:
        self._mark = len(self._hashes)

    def undo(self) -> None:
        hashes, places = self._hashes[: self._mark], self._places[: self._mark]
        self._forget_turn()
        self._remember(hashes, places)

    def write(self, now: int) -> None:
        """Insert the keys of the turn before the commit."""
        if self._hashes:
            # Sorted keys go to neighbouring pages of the index.
            hashes, places = zip(*sorted(zip(self._hashes, self._places, strict=True)), strict=True)
            keys = {"hashes": _array(hashes), "places": _array(places)}
            self._session.run("dedupe_add", {**keys, "now": now})

    def forget(self, before: int, limit: int) -> int:
        return self._session.run("dedupe_forget", {"before": before, "limit": max(limit, CHUNK)})


def _array(numbers: Sequence[int]) -> str:
    """The text of a PostgreSQL array. psycopg would convert thousands of numbers one by one."""
    return f"{{{','.join(map(str, numbers))}}}"
