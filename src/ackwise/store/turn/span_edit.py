"""Spans of one lane (or of one lease) that are changed in memory and then written at once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from ackwise.core.spans import Span
from ackwise.store.turn.context import Turn, span_params


class SpanEdit:
    """Disjoint spans, lane by lane in order; within a lane keyed by their end, as they are stored."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = list(spans)
        self._keys = list(map(_key, spans))
        self._stored = dict(zip(self._keys, spans, strict=True))

    def all(self) -> list[Span]:
        return list(self._spans)

    def touching(self, lane: int, lo: int, hi: int) -> list[Span]:
        """Those that hold something of [lo, hi)."""
        at = end = bisect_right(self._keys, (lane, lo))
        while end < len(self._spans) and self._spans[end].lane == lane and self._spans[end].lo < hi:
            end += 1
        return self._spans[at:end]

    def replace(self, old: Span, new: list[Span]) -> None:
        """Put `new` where `old` was."""
        at = bisect_left(self._keys, _key(old))
        new = sorted(new, key=_key)
        self._spans[at : at + 1] = new
        self._keys[at : at + 1] = map(_key, new)

    def write(self, turn: Turn) -> None:
        now = dict(zip(self._keys, self._spans, strict=True))
        gone = [span for key, span in self._stored.items() if key not in now]
        changed = [span for key, span in now.items() if key in self._stored and self._stored[key] is not span]
        new = [span for key, span in now.items() if key not in self._stored]
        turn.session.many("span_delete", [{"lane": s.lane, "grp": s.grp, "hi": s.hi} for s in gone])
        turn.session.many("span_update", map(span_params, changed))
        turn.session.many("span_insert", map(span_params, new))


def _key(span: Span) -> tuple[int, int]:
    return span.lane, span.hi
