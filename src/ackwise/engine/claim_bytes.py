"""Byte budgets of claims, from the stored lengths of segments. Never reads payloads."""

from __future__ import annotations

from collections.abc import Iterator

from ackwise.core.lane_selection import Take
from ackwise.core.spans import Cursor
from ackwise.engine import segment_reads
from ackwise.engine.ports import Session

PAGE = 500
"""Segments whose lengths one statement reads."""


class ByteBudget:
    """Byte budget of a claim.

    A lane knows the size of its largest message. While the number of messages times this size fits the budget, the
    estimate is enough. Otherwise the budget reads the real lengths from the database.
    """

    def __init__(self, session: Session, most: int) -> None:
        self._session, self._most = session, most
        self.taken = 0
        """Upper bound of the bytes taken so far."""
        self._empty = True
        self._estimated: list[tuple[Cursor, list[Take], int]] = []

    @property
    def full(self) -> bool:
        """Whether the claim must stop."""
        return self.taken >= self._most and not self._empty

    def add(self, size: int) -> None:
        """Count the bytes that a repeated claim holds already."""
        self.taken += size
        self._empty = False

    def fit(self, cursor: Cursor, takes: list[Take]) -> list[Take]:
        """The first part of `takes` that fits. The first message of a claim always fits."""
        estimate = sum(take.hi - take.lo for take in takes) * cursor.largest
        if self.taken + estimate > self._most and self._estimated:
            self._weigh_estimated()
        if self.taken + estimate <= self._most:
            self._estimated.append((cursor, takes, estimate))
            self.taken += estimate
            self._empty = False
            return takes
        fitting: list[Take] = []
        for take in takes:
            fit = self._cut(cursor, take)
            if fit is not None:
                fitting.append(fit)
            if fit != take:
                break
        return fitting

    def _weigh_estimated(self) -> None:
        for cursor, takes, estimate in self._estimated:
            exact = sum(size for take in takes for *_, size in self._pieces(cursor, take))
            self.taken += min(0, exact - estimate)
        self._estimated.clear()

    def _cut(self, cursor: Cursor, take: Take) -> Take | None:
        """The first part of `take` that fits. The budget is full if that is not all of it."""
        for lo, hi, size in self._pieces(cursor, take):
            if self.taken + size > self._most:
                end = lo + min(hi - lo - 1, max(0, self._most - self.taken) // max(1, cursor.largest))
                if self._empty and end == lo:
                    self.taken, end = self.taken + min(size, cursor.largest), lo + 1
                self.taken, self._empty = max(self._most, self.taken), False
                return Take(take.lo, end, take.span) if end > take.lo else None
            self.taken += size
            self._empty = False
        return take

    def _pieces(self, cursor: Cursor, take: Take) -> Iterator[tuple[int, int, int]]:
        """[lo, hi) and bytes of `take` in each segment. For a part of a segment the bytes are an upper bound."""
        lo = take.lo
        while lo < take.hi:
            page = segment_reads.sizes(self._session, cursor.lane, lo, take.hi, PAGE)
            for first, last, size in page:
                lo, hi = max(lo, first), min(take.hi, last + 1)
                yield lo, hi, min(size, (hi - lo) * cursor.largest)
                lo = hi
            if len(page) < PAGE:
                return
