"""Claims that wait in a thread."""

from __future__ import annotations

from collections.abc import Sequence

from ackwise.broker.long_polls import LongPoll, LongPolls
from ackwise.core.commands import Claim
from tests.broker.both_brokers import AnyBroker
from tests.broker.watched import Errand, until

LONG = 60.0


def parked(watched_broker: AnyBroker, command: Claim) -> Errand:
    """A waiter that is asleep."""
    before = len(watched_broker.long_polls)
    errand = Errand(lambda: watched_broker.claim(command, LONG))
    until(lambda: len(watched_broker.long_polls) > before)
    return errand


def unparked_after_commit(polls: LongPolls, queues: dict[str, int], riders: Sequence[LongPoll]) -> list[LongPoll]:
    """The claims that a commit unparks."""
    unparked: list[LongPoll] = []
    polls.unpark_after_commit(queues, riders, unparked)
    return unparked
