"""Lookahead: finds the messages that a filter wants before the dispatcher claims them. Looking costs no delivery."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ackwise.broker import AsyncBroker
from ackwise.core.answers import Claimed
from ackwise.core.filters import ContentFilter, Document
from ackwise.core.ids import LaneId
from ackwise.core.lane_range import LaneRange, merge_ranges
from ackwise.core.queries import ListAvailable
from ackwise.core.rows import AvailableRange
from ackwise.engine.segment import Segment
from ackwise.store.port import Store

if TYPE_CHECKING:
    from ackwise.protocols.amps.subscription import QueueSubscription

log = logging.getLogger("ackwise.amps")

LOOK_EVERY = 30.0
"""Seconds after which a filter looks again without a commit."""
MOST_LOOK_SECONDS = 0.01
"""Seconds after which a round looks for no further filter. The next round begins with the postponed filters."""
MOST_LOOKED = 1000
"""Messages that one step reads."""
MOST_BYTES = 4 << 20
"""Bytes at which one step stops."""
MOST_STEP_VISITS = 100_000
"""Visits of a filter at which one step stops."""
MOST_WANTED = 1000
"""Wanted messages that a filter keeps. The lookahead stops there until subscribers take some."""
MOST_REMEMBERED = 100_000
"""Lanes and returned ranges that a filter remembers. Above this bound the lookahead forgets them and looks again."""
START = (-1, -1, -1)

Place = tuple[int, int]
"""Lane and seq of a message."""


class Lookahead:
    """Wanted messages of one filter, in the order in which a claim would take them. Without a filter all are wanted.

    A message never changes, so the lookahead judges it once. `_seen` has the place of each lane up to which all
    messages are judged. A message that was delivered returns below that place. The store lists returned messages apart,
    and `_returned` has those that are judged.
    """

    def __init__(self, store: Store, queue: str, group: str, content_filter: ContentFilter | None) -> None:
        self._store, self._queue, self._group, self._filter = store, queue, group, content_filter
        self._wanted: dict[Place, None] = {}
        self._seen: dict[int, tuple[int, int, int]] = {}
        self._returned: dict[AvailableRange, int] = {}
        """Seq up to which a returned range is judged."""
        self._after = START
        self._returned_after: tuple[int, int, int] | None = None
        self._segment: Segment | None = None
        self._bytes = self._visits = 0
        self._warned = False
        self.until: int | None = None
        """When the next message becomes available without a commit."""
        self._complete: tuple[int, float] | None = None
        """Version of the queue up to which all messages are judged, and when the lookahead looked."""

    @property
    def has_filter(self) -> bool:
        return self._filter is not None

    def knows_all(self, version: int, now: int) -> bool:
        """Whether a look would find nothing new: no commit offered messages after the last look, and none is due."""
        if self._complete is None or self._complete[0] != version or (self.until is not None and self.until <= now):
            return False
        return time.monotonic() < self._complete[1] + LOOK_EVERY

    def look_at(self, version: int) -> bool:
        """Judge some more messages at a version of the queue. Returns whether more are left to judge."""
        self._complete = None
        more = self.look()
        if not more:
            self._complete = version, time.monotonic()
        return more

    def __len__(self) -> int:
        return len(self._wanted)

    def look(self) -> bool:
        """Judge some more messages, in any thread. Returns whether more are left to judge."""
        if len(self._seen) + len(self._returned) > MOST_REMEMBERED:
            self._seen.clear()
            self._returned.clear()
        query = ListAvailable(
            queue=self._queue,
            group=self._group,
            seen=self._seen,
            after=self._after,
            returned_after=self._returned_after,
            limit=MOST_LOOKED,
        )
        page = self._store.ask(query)
        times = [page.until] if self._after == START else [page.until, self.until]
        self.until = min((at for at in times if at is not None), default=None)
        self._bytes, self._visits, self._segment = MOST_BYTES, MOST_STEP_VISITS, None
        complete = all(map(self._judge_range, page.ranges))
        if not complete:
            return True
        self._after, self._returned_after = (page.next, page.returned_next) if page.more else (START, None)
        return page.more

    @property
    def _full(self) -> bool:
        """Whether the step must stop."""
        return self._bytes <= 0 or self._visits <= 0 or len(self._wanted) >= MOST_WANTED

    def _judge_range(self, available: AvailableRange) -> bool:
        """Judge a range from the place where the last step stopped. Returns False if the step stops before its end."""
        place = self._returned.get(available, available.lo) if available.due_at else available.lo
        while place < available.hi:
            if self._full:
                return False
            place = self._judge(LaneRange(LaneId(available.lane), place, available.hi))
            if available.due_at:
                self._returned[available] = place
            else:
                self._seen[available.lane] = (*available.generation, place)
        return True

    def _judge(self, messages: LaneRange) -> int:
        """Judge messages until the step is full. Returns the seq behind the last one. Skips removed messages."""
        if self._filter is None:
            end = min(messages.hi, messages.lo + MOST_WANTED - len(self._wanted))
            self._wanted.update(dict.fromkeys((messages.lane, seq) for seq in range(messages.lo, end)))
            return end
        segments, end = self._read(messages)
        for segment in segments:
            lo, hi = max(messages.lo, segment.first), min(messages.hi, segment.last + 1)
            _, _, payloads, _ = segment.cells(lo, hi)
            for seq, payload in enumerate(payloads, lo):
                if self._takes(self._filter, payload):
                    self._wanted[messages.lane, seq] = None
                self._bytes -= len(payload)
                if self._full:
                    return seq + 1
        return end

    def _takes(self, content_filter: ContentFilter, payload: bytes) -> bool:
        """Whether the filter takes a message. A message that is too costly to judge stays available for others."""
        document = Document(payload)
        matches = content_filter.takes(document)
        self._visits -= document.visits
        if matches is None and not self._warned:
            self._warned = True
            log.warning(
                "queue %.255s: a message of %d bytes has too many values for a filter; "
                "it stays available for other subscribers",
                self._queue,
                len(payload),
            )
        return matches is True

    def _read(self, messages: LaneRange) -> tuple[list[Segment], int]:
        """Segments of the first part of a range that fits the step, and the end of that part.

        Neighbouring ranges often lie in one segment. The lookahead reads that segment once.
        """
        last = self._segment
        if last is not None and last.lane == messages.lane and last.first <= messages.lo <= last.last:
            return [last], min(messages.hi, last.last + 1)
        (segments,) = self._store.read([messages], self._bytes)
        self._segment = segments[-1] if segments else None
        return segments, messages.hi if not segments else min(messages.hi, segments[-1].last + 1)

    def take(self, count: int) -> tuple[LaneRange, ...]:
        """Remove the first `count` wanted messages and return them as ranges for a claim."""
        places = list(islice(self._wanted, count))
        for place in places:
            del self._wanted[place]
        return tuple(merge_ranges([LaneRange(LaneId(lane), seq, seq + 1) for lane, seq in places], len(places) + 1))

    def put_back(self, taken: Iterable[LaneRange], claimed: Claimed | None = None) -> None:
        """Keep taken messages that the claim neither granted nor found gone. Without an answer, keep all of them."""
        ended = set() if claimed is None else set(_places([*claimed.ranges, *claimed.gone]))
        kept = dict.fromkeys(place for place in _places(taken) if place not in ended)
        if kept:
            self._wanted = {**kept, **self._wanted}


def _places(ranges: Iterable[LaneRange]) -> Iterator[Place]:
    return ((lane, seq) for lane, lo, hi in ranges for seq in range(lo, hi))


class Lookaheads:
    """The lookaheads of one queue and group, one for each filter text. None is the text of no filter."""

    def __init__(self, broker: AsyncBroker, queue: str, group: str) -> None:
        self._broker, self._queue, self._group = broker, queue, group
        self._by_text: dict[str | None, Lookahead] = {}
        self._needed: list[Lookahead] = []
        self._postponed: set[Lookahead] = set()
        self.version = 0
        """Number of commits that offered messages of the queue."""

    def of(self, member: QueueSubscription) -> Lookahead:
        content_filter = member.content_filter
        text = None if content_filter is None else content_filter.text
        known = self._by_text.get(text)
        if known is None:
            known = self._by_text[text] = Lookahead(self._broker.store, self._queue, self._group, content_filter)
        return known

    def keep(self, members: Iterable[QueueSubscription]) -> None:
        """Forget the lookaheads of filters that no subscription has."""
        used = {member.content_filter.text for member in members if member.content_filter is not None}
        self._by_text = {text: known for text, known in self._by_text.items() if text in used}

    async def look(self, members: Sequence[QueueSubscription]) -> bool:
        """Make one step for each filter whose subscriptions have more room than it knows wanted messages.

        A filter that has judged all messages makes no step before a commit offers messages. Returns whether a filter
        has more messages to judge. The filter of the first subscription looks last, so it knows every message that the
        others know, and the first subscription gets its turn.
        """
        needs: dict[Lookahead, int] = {}
        for member in members:
            lookahead = self.of(member)
            needs[lookahead] = needs.get(lookahead, 0) + member.room
        now, end = self._broker.now(), time.monotonic() + MOST_LOOK_SECONDS
        self._needed = [known for known, room in reversed(needs.items()) if len(known) < min(room, MOST_WANTED)]
        postponed, self._postponed = self._postponed, set()
        more, steps = False, 0
        for lookahead in sorted(self._needed, key=lambda lookahead: lookahead not in postponed):
            if lookahead.knows_all(self.version, now):
                continue
            if lookahead.has_filter:
                if steps and time.monotonic() > end:
                    self._postponed.add(lookahead)
                    continue
                steps += 1
            more |= await self._broker.in_thread(lookahead.look_at, self.version)
        return more or bool(self._postponed)

    @property
    def until(self) -> int | None:
        """When the next message becomes available without a commit."""
        return min((known.until for known in self._needed if known.until is not None), default=None)
