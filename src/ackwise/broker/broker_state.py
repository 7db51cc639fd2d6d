"""State of a broker: the store, parked claims, listeners, and whether the broker drains or is closed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ackwise.broker.duty_health import DutyHealth
from ackwise.broker.long_polls import LongPoll, LongPolls
from ackwise.broker.notifications import Listeners
from ackwise.broker.turn_queue import Submission, finish_all, wake_again
from ackwise.clock import ManualClock
from ackwise.core.events import BrokerStarted, BrokerStopped, EventStream
from ackwise.store.port import Store


class BrokerState:
    """Base of both brokers. Only `close_store` waits."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = store.clock.now
        """The anchored clock, in microseconds: deadlines are instants of it."""
        self.now_and_shift = store.clock.now_and_shift
        """Both at one moment: the wall clock is `now - shift`."""
        self.long_polls = LongPolls()
        self.listeners = Listeners()
        self.duties = DutyHealth()
        self.on_news: list[Callable[[], None]] = []
        """Called when another process may have committed. A callback must return at once."""
        self.draining = False
        """Whether claims return empty. Settlements and pushes still work."""
        self.closed = False
        if store.events.listening:
            store.events.emit(BrokerStarted(store.traits.instance, store.traits.name))

    def close_store(self) -> None:
        self.store.close()
        if self.store.events.listening:
            self.store.events.emit(BrokerStopped(self.store.traits.instance))

    def follow_store(self, retry: Callable[[], None]) -> None:
        """Call `retry` when another process may have committed, and when a test moves the clock."""
        if isinstance(self.store.clock, ManualClock):
            self.store.clock.on_move(retry)
        self.store.on_change = retry

    @property
    def events(self) -> EventStream:
        """The events of the store and of this broker."""
        return self.store.events

    @property
    def has_waiters(self) -> bool:
        """Whether a claim or a listener waits for a commit."""
        return bool(len(self.long_polls) or len(self.listeners))

    def finish_interrupted(
        self, taken: Sequence[Submission], polls: Sequence[LongPoll], leader: Submission | None
    ) -> None:
        """Wake every caller of a committed turn and every parked claim. A claim that nothing serves parks again.

        A rider that has parked again may be in another turn. That turn wakes it.
        """
        left = [poll for poll in polls if self.long_polls.leave(poll) or poll.done]
        wake_again([*left, *(submission for submission in taken if submission is not leader)])
        self.retry_parked()

    def retry_parked(self) -> None:
        """Wake every parked claim and every listener, because another process may have committed."""
        wake(self.long_polls.unpark_all())
        self.listeners.notify_all()
        for callback in self.on_news:
            callback()

    def retry_scouts(self) -> None:
        """Wake some parked claims in case a wake-up was missed."""
        wake(self.long_polls.unpark_scouts(time.monotonic()))

    def stop_claims(self) -> None:
        """Stop claims: parked ones return empty at once. Settlements and pushes still work."""
        self.draining = True
        self.retry_parked()


def wake(polls: Sequence[LongPoll]) -> None:
    """Wake the callers of unparked claims."""
    finish_all(polls)
