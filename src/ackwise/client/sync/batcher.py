# Generated from ../aio/batcher.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Acks of many callers, sent together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ackwise.client.beside.threads import Lock, Once, breathe, to_its_end
from ackwise.core.errors import AckwiseError

K = TypeVar("K", bound="Any")
Item = TypeVar("Item")
A = TypeVar("A")
K_in = TypeVar("K_in", contravariant=True)
Item_in = TypeVar("Item_in", contravariant=True)
A_out = TypeVar("A_out", covariant=True)

PAUSE_AFTER_FAILURE = 1.0


class Sender(Protocol[K_in, Item_in, A_out]):
    """Sends batches, each under its key; an outcome for each: an answer for every item of it, or why it failed."""

    def __call__(
        self, batches: Sequence[tuple[K_in, Sequence[Item_in]]]
    ) -> Sequence[Sequence[A_out] | AckwiseError]: ...


class _Asked(Generic[Item, A]):
    """An item whose caller waits for its answer, or for its turn to send what waits."""

    __slots__ = ("answer", "gone", "item", "leads", "signal")

    def __init__(self, item: Item) -> None:
        self.item, self.signal, self.leads = item, Once(), False
        self.gone = False
        """Its caller was interrupted, and cannot lead."""
        self.answer: list[A] | AckwiseError | None = None


class _Buffer(Generic[Item]):
    """Items of one key that nobody waits for, with the instants at which they came, the oldest first."""

    __slots__ = ("items", "not_before")

    def __init__(self) -> None:
        self.items: dict[Item, float] = {}
        self.not_before = 0.0

    @property
    def since(self) -> float:
        return next(iter(self.items.values()))


class Batcher(Generic[K, Item, A]):
    """Two ways to one request. `ask` waits for its own answer: who asks while a request is under way goes into the next
    one, together with all others. `add` does not wait: what was added under a key is sent when there are `size` of it,
    when the oldest of it is `timeout` seconds old, or by `flush`; what could not be sent is kept for the next time.

    The owner calls `flush_due` when `add` says so, and when `pause` seconds have gone.
    """

    def __init__(self, send: Sender[K, Item, A], clock: Callable[[], float] = time.monotonic) -> None:
        self._send, self._clock = send, clock
        self.size = 1
        self.timeout: float | None = 1.0
        self.caps: dict[K, int] = {}
        """Keys of which there are never `size` at once."""
        self._guard = threading.Lock()
        self._sending = Lock()
        self._asked: dict[K, list[_Asked[Item, A]]] = {}
        self._asked_now: list[_Asked[Item, A]] = []
        """What is sent just now."""
        self._led = False
        """Somebody sends what was asked."""
        self._buffers: dict[K, _Buffer[Item]] = {}
        self._under_way = 0
        self._epoch = 0

    # callers that wait

    def ask(self, key: K, item: Item) -> A:
        """The answer to this item; a failure is raised to all whose items were in the same request."""
        mine: _Asked[Item, A] = _Asked(item)
        with self._guard:
            self._asked.setdefault(key, []).append(mine)
            mine.leads, self._led = not self._led, True
        try:
            if not mine.leads:
                mine.signal.wait()
            if mine.leads:
                breathe()
                together = self._take_asked(key, mine)
                to_its_end(lambda: self._send_asked(key, together, mine))
        finally:
            self._leave(key, mine)
        if isinstance(mine.answer, AckwiseError):
            raise mine.answer
        assert mine.answer is not None
        return mine.answer[0]

    def unanswered(self) -> list[Item]:
        """What was asked and waits to be sent, or was sent and has no answer yet."""
        with self._guard:
            return [one.item for some in (self._asked_now, *self._asked.values()) for one in some]

    def _take_asked(self, key: K, leader: _Asked[Item, A]) -> list[_Asked[Item, A]]:
        with self._guard:
            # From here on whoever sends lets the next lead, even if the leader is interrupted.
            leader.leads = False
            self._asked_now = self._asked.pop(key)
            return self._asked_now

    def _send_asked(self, key: K, together: list[_Asked[Item, A]], leader: _Asked[Item, A]) -> None:
        try:
            (outcome,) = self._send([(key, [one.item for one in together])])
        except BaseException:
            # The leader gets it; the others are sent by the next of them.
            with self._guard:
                rest = [one for one in together if one is not leader and not one.gone]
                self._asked[key] = rest + self._asked.get(key, [])
            raise
        else:
            for at, one in enumerate(together):
                one.answer = outcome.again() if isinstance(outcome, AckwiseError) else [outcome[at]]
                one.signal.set()
        finally:
            with self._guard:
                self._asked_now = []
                self._pass_on()

    def _leave(self, key: K, mine: _Asked[Item, A]) -> None:
        """Whoever was interrupted waits no longer, and cannot lead."""
        if mine.answer is not None and not mine.leads:
            return
        with self._guard:
            mine.gone = True
            if mine.answer is None and mine in self._asked.get(key, ()):
                self._asked[key].remove(mine)
            if mine.leads:
                self._pass_on()

    def _pass_on(self) -> None:
        """The next may lead. Under the guard."""
        following = next((some[0] for some in self._asked.values() if some), None)
        self._led = following is not None
        if following is not None:
            following.leads = True
            following.signal.set()

    # what nobody waits for

    def __len__(self) -> int:
        with self._guard:
            return sum(len(buffer.items) for buffer in self._buffers.values())

    def add(self, key: K, item: Item) -> bool:
        """Whether its owner has to look: a batch is full, or one has begun that gets old."""
        with self._guard:
            buffer = self._buffers.setdefault(key, _Buffer())
            buffer.items.setdefault(item, self._clock())
            return len(buffer.items) >= self._size(key) or len(buffer.items) == 1

    def _size(self, key: K) -> int:
        return min(self.size, self.caps.get(key, self.size))

    def discard(self, item: Item, meant: Callable[[K], bool]) -> None:
        """It was sent in another way."""
        with self._guard:
            for key in [key for key in self._buffers if meant(key)]:
                self._buffers[key].items.pop(item, None)
                self._forget(key)

    def _forget(self, key: K) -> None:
        """Keys come and go: one with nothing under it is not kept."""
        if not self._buffers[key].items:
            del self._buffers[key]

    def arrived(self, count: int) -> None:
        """So many of what is under way are known to have been sent, before the whole of it is."""
        with self._guard:
            self._under_way = max(0, self._under_way - count)

    def drop(self, meant: Callable[[K], bool]) -> int:
        """Forget what is gathered under some keys; how much that was."""
        with self._guard:
            return sum(len(self._buffers.pop(key).items) for key in [key for key in self._buffers if meant(key)])

    def clear(self) -> int:
        """Forget everything, also what is under way if it fails; how much that was."""
        with self._guard:
            dropped = self._under_way + sum(len(buffer.items) for buffer in self._buffers.values())
            self._buffers.clear()
            self._under_way = 0
            self._epoch += 1
            return dropped

    def pause(self) -> float | None:
        """Seconds until something is due by its age; None when nothing will be."""
        with self._guard:
            times = [self._due_at(key, buffer) for key, buffer in self._buffers.items()]
        known = [at for at in times if at is not None]
        return max(0.0, min(known) - self._clock()) if known else None

    def _due_at(self, key: K, buffer: _Buffer[Item]) -> float | None:
        if len(buffer.items) >= self._size(key):
            return buffer.not_before
        return None if self.timeout is None else max(buffer.not_before, buffer.since + self.timeout)

    def flush(self, meant: Callable[[K], bool] = lambda key: True) -> None:
        """Send what is there, one batch for each key in sorted order; what is under way is waited for."""
        with self._sending:
            with self._guard:
                there = [key for key in sorted(self._buffers) if meant(key)]
                epoch = self._take(batches := [(key, dict(self._buffers[key].items)) for key in there])
            problems = self._send_taken(batches, epoch)
        if problems:
            raise problems[0]

    def flush_due(self) -> list[AckwiseError]:
        """Send full batches and those that are old enough; what went wrong with them."""
        with self._sending:
            now = self._clock()
            with self._guard:
                due = [key for key in sorted(self._buffers) if self._is_due(key, now)]
                batches = [(key, items) for key in due for items in self._pieces(key, now)]
                epoch = self._take(batches)
            return self._send_taken(batches, epoch)

    def _is_due(self, key: K, now: float) -> bool:
        at = self._due_at(key, self._buffers[key])
        return at is not None and at <= now

    def _pieces(self, key: K, now: float) -> list[dict[Item, float]]:
        """Never more than `size` at once; what is left over waits, unless it is old enough."""
        buffer, size = self._buffers[key], self._size(key)
        items = list(buffer.items.items())
        pieces = [dict(items[at : at + size]) for at in range(0, len(items), size)]
        old = self.timeout is not None and buffer.since + self.timeout <= now
        return pieces if old or len(pieces[-1]) == size else pieces[:-1]

    def _take(self, batches: list[tuple[K, dict[Item, float]]]) -> int:
        """Out of the buffers and under way, all in one step with having been looked for."""
        for key, items in batches:
            for item in items:
                del self._buffers[key].items[item]
        for key in {key for key, _ in batches}:
            self._forget(key)
        self._under_way = sum(len(items) for _, items in batches)
        return self._epoch

    def _send_taken(self, batches: list[tuple[K, dict[Item, float]]], epoch: int) -> list[AckwiseError]:
        if not batches:
            return []
        done = 0
        problems: list[AckwiseError] = []
        try:
            for outcome in self._send([(key, list(items)) for key, items in batches]):
                if isinstance(outcome, AckwiseError):
                    problems.append(outcome)
                    self._keep(*batches[done], epoch)
                done += 1
        finally:
            for key, items in batches[done:]:
                self._keep(key, items, epoch)
            with self._guard:
                self._under_way = 0
        return problems

    def _keep(self, key: K, items: dict[Item, float], epoch: int) -> None:
        """Back in front of what came meanwhile, unless everything was forgotten."""
        with self._guard:
            if epoch == self._epoch:
                buffer = self._buffers.setdefault(key, _Buffer())
                buffer.items = {**items, **buffer.items}
                buffer.not_before = self._clock() + PAUSE_AFTER_FAILURE
