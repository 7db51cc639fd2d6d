# Generated from ../aio/ack_batcher.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Batches items of concurrent callers, such as acks, into one request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ackwise.client.concurrency.threads import Lock, OneShotEvent, run_to_completion, yield_control
from ackwise.core.errors import AckwiseError

K = TypeVar("K", bound="Any")
Item = TypeVar("Item")
A = TypeVar("A")
K_in = TypeVar("K_in", contravariant=True)
Item_in = TypeVar("Item_in", contravariant=True)
A_out = TypeVar("A_out", covariant=True)

PAUSE_AFTER_FAILURE = 1.0
"""Seconds before a failed batch is sent again."""


class Sender(Protocol[K_in, Item_in, A_out]):
    """Sends batches, each with its key. Returns for each batch one answer per item, or the batch's error."""

    def __call__(
        self, batches: Sequence[tuple[K_in, Sequence[Item_in]]]
    ) -> Sequence[Sequence[A_out] | AckwiseError]: ...


class _WaitingItem(Generic[Item, A]):
    """An item whose caller waits. The caller either gets the answer or becomes the leader, which sends a request."""

    __slots__ = ("answer", "cancelled", "item", "leads", "signal")

    def __init__(self, item: Item) -> None:
        self.item, self.signal, self.leads = item, OneShotEvent(), False
        self.cancelled = False
        """The caller was cancelled and cannot lead."""
        self.answer: list[A] | AckwiseError | None = None


class _Buffer(Generic[Item]):
    """Added items of one key with the instants at which they were added, oldest first. No caller waits for them."""

    __slots__ = ("items", "not_before")

    def __init__(self) -> None:
        self.items: dict[Item, float] = {}
        self.not_before = 0.0

    @property
    def since(self) -> float:
        return next(iter(self.items.values()))


class Batcher(Generic[K, Item, A]):
    """Batches items into requests, for callers that wait and for callers that do not.

    `submit` waits for the item's answer. Items that are submitted during a request share the next request.

    `add` does not wait. The items of a key are sent when there are `size` of them, when the oldest is `timeout` seconds
    old, or by `flush`. Items of a failed request stay buffered. The owner of the batcher calls `flush_due` when `add`
    returns True and after `pause()` seconds.
    """

    def __init__(self, send: Sender[K, Item, A], clock: Callable[[], float] = time.monotonic) -> None:
        self._send, self._clock = send, clock
        self.size = 1
        self.timeout: float | None = 1.0
        self.caps: dict[K, int] = {}
        """Smaller batch sizes for single keys."""
        self._guard = threading.Lock()
        self._sending = Lock()
        self._waiting: dict[K, list[_WaitingItem[Item, A]]] = {}
        self._in_flight: list[_WaitingItem[Item, A]] = []
        """The items of the current request."""
        self._has_leader = False
        """Whether a caller sends, or is about to send, a request."""
        self._buffers: dict[K, _Buffer[Item]] = {}
        self._under_way = 0
        self._epoch = 0

    # callers that wait

    def submit(self, key: K, item: Item) -> A:
        """Send `item` with the next request and return its answer. An error of the request is raised to its callers."""
        waiting: _WaitingItem[Item, A] = _WaitingItem(item)
        with self._guard:
            self._waiting.setdefault(key, []).append(waiting)
            waiting.leads, self._has_leader = not self._has_leader, True
        try:
            if not waiting.leads:
                waiting.signal.wait()
            if waiting.leads:
                yield_control()
                group = self._take_waiting(key, waiting)
                run_to_completion(lambda: self._send_waiting(key, group, waiting))
        finally:
            self._leave(key, waiting)
        if isinstance(waiting.answer, AckwiseError):
            raise waiting.answer
        assert waiting.answer is not None
        return waiting.answer[0]

    def unanswered(self) -> list[Item]:
        """Submitted items that have no answer yet, whether sent or not."""
        with self._guard:
            return [entry.item for entries in (self._in_flight, *self._waiting.values()) for entry in entries]

    def _take_waiting(self, key: K, leader: _WaitingItem[Item, A]) -> list[_WaitingItem[Item, A]]:
        with self._guard:
            # From here on _send_waiting chooses the next leader, even if this leader is cancelled.
            leader.leads = False
            self._in_flight = self._waiting.pop(key)
            return self._in_flight

    def _send_waiting(self, key: K, group: list[_WaitingItem[Item, A]], leader: _WaitingItem[Item, A]) -> None:
        try:
            (outcome,) = self._send([(key, [entry.item for entry in group])])
        except BaseException:
            # The leader raises the error. The next leader sends the other callers' items again.
            with self._guard:
                rest = [entry for entry in group if entry is not leader and not entry.cancelled]
                self._waiting[key] = rest + self._waiting.get(key, [])
            raise
        else:
            for at, entry in enumerate(group):
                entry.answer = outcome.again() if isinstance(outcome, AckwiseError) else [outcome[at]]
                entry.signal.set()
        finally:
            with self._guard:
                self._in_flight = []
                self._choose_next_leader()

    def _leave(self, key: K, waiting: _WaitingItem[Item, A]) -> None:
        """Remove a cancelled caller's item. If the caller led, choose the next leader."""
        if waiting.answer is not None and not waiting.leads:
            return
        with self._guard:
            waiting.cancelled = True
            if waiting.answer is None and waiting in self._waiting.get(key, ()):
                self._waiting[key].remove(waiting)
            if waiting.leads:
                self._choose_next_leader()

    def _choose_next_leader(self) -> None:
        """Wake the next waiting caller as the leader. Call it under the guard."""
        following = next((entries[0] for entries in self._waiting.values() if entries), None)
        self._has_leader = following is not None
        if following is not None:
            following.leads = True
            following.signal.set()

    # callers that do not wait

    def __len__(self) -> int:
        with self._guard:
            return sum(len(buffer.items) for buffer in self._buffers.values())

    def add(self, key: K, item: Item) -> bool:
        """Buffer `item`. True when the owner must call `flush_due`: the batch is full, or it is new and may get old."""
        with self._guard:
            buffer = self._buffers.setdefault(key, _Buffer())
            buffer.items.setdefault(item, self._clock())
            return len(buffer.items) >= self._size(key) or len(buffer.items) == 1

    def _size(self, key: K) -> int:
        return min(self.size, self.caps.get(key, self.size))

    def discard(self, item: Item, matches: Callable[[K], bool]) -> None:
        """Remove an item from the buffers of the keys that match: it was sent in another way."""
        with self._guard:
            for key in [key for key in self._buffers if matches(key)]:
                self._buffers[key].items.pop(item, None)
                self._forget(key)

    def _forget(self, key: K) -> None:
        """Delete the key's buffer if it is empty."""
        if not self._buffers[key].items:
            del self._buffers[key]

    def arrived(self, count: int) -> None:
        """Note that the server has done `count` items of the current request, before the whole request has ended."""
        with self._guard:
            self._under_way = max(0, self._under_way - count)

    def drop(self, matches: Callable[[K], bool]) -> int:
        """Drop the buffered items of the keys that match. Returns their number."""
        with self._guard:
            return sum(len(self._buffers.pop(key).items) for key in [key for key in self._buffers if matches(key)])

    def clear(self) -> int:
        """Drop all buffered items, and those of the current request if it fails. Returns their number."""
        with self._guard:
            dropped = self._under_way + sum(len(buffer.items) for buffer in self._buffers.values())
            self._buffers.clear()
            self._under_way = 0
            self._epoch += 1
            return dropped

    def pause(self) -> float | None:
        """Seconds until the next batch is due. None if no batch has a due time."""
        with self._guard:
            times = [self._due_at(key, buffer) for key, buffer in self._buffers.items()]
        known = [at for at in times if at is not None]
        return max(0.0, min(known) - self._clock()) if known else None

    def _due_at(self, key: K, buffer: _Buffer[Item]) -> float | None:
        if len(buffer.items) >= self._size(key):
            return buffer.not_before
        return None if self.timeout is None else max(buffer.not_before, buffer.since + self.timeout)

    def flush(self, matches: Callable[[K], bool] = lambda key: True) -> None:
        """Send all items of the keys that match, one batch per key in sorted order, and wait for the answers."""
        with self._sending:
            with self._guard:
                keys = [key for key in sorted(self._buffers) if matches(key)]
                epoch = self._take(batches := [(key, dict(self._buffers[key].items)) for key in keys])
            problems = self._send_taken(batches, epoch)
        if problems:
            raise problems[0]

    def flush_due(self) -> list[AckwiseError]:
        """Send the batches that are full or old enough. Returns their errors."""
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
        """Cut a key's items into batches of `size`. The last, smaller batch waits unless it is old enough."""
        buffer, size = self._buffers[key], self._size(key)
        items = list(buffer.items.items())
        pieces = [dict(items[at : at + size]) for at in range(0, len(items), size)]
        old = self.timeout is not None and buffer.since + self.timeout <= now
        return pieces if old or len(pieces[-1]) == size else pieces[:-1]

    def _take(self, batches: list[tuple[K, dict[Item, float]]]) -> int:
        """Move batches out of the buffers. Call it under the same guard that selected them. Returns the epoch."""
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
        """Put the items of a failed batch back in front of newer items, unless `clear` was called meanwhile."""
        with self._guard:
            if epoch == self._epoch:
                buffer = self._buffers.setdefault(key, _Buffer())
                buffer.items = {**items, **buffer.items}
                buffer.not_before = self._clock() + PAUSE_AFTER_FAILURE
