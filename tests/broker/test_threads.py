"""What only a broker on threads does: races between threads, and interrupts."""

from __future__ import annotations

import threading

import pytest

from ackwise.broker import Broker
from ackwise.broker.long_polls import LongPoll, QueueVersion
from tests.broker.watched import Errand, WatchedStore, bodies, claim, interrupt, push, until
from tests.patience import PATIENCE


def test_push_between_the_try_and_the_sleep_is_not_missed(
    thread_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    park = thread_broker.long_polls.park
    slept: list[bool] = []

    def late(slot: LongPoll, seen: QueueVersion) -> bool:
        thread_broker.send(push("1"))
        slept.append(park(slot, seen))
        return slept[-1]

    monkeypatch.setattr(thread_broker.long_polls, "park", late)
    assert bodies(thread_broker.claim(claim(), 1.0)) == ["1"]
    assert slept == [False]


@pytest.mark.usefixtures("interrupts")
def test_interrupted_wait_leaves_no_parked_claim(thread_broker: Broker) -> None:
    def interrupt_when_parked() -> None:
        until(lambda: len(thread_broker.long_polls) == 1)
        interrupt()

    interrupting = Errand(interrupt_when_parked)
    with pytest.raises(KeyboardInterrupt):
        thread_broker.claim(claim(), PATIENCE)
    interrupting.result()
    assert len(thread_broker.long_polls) == 0
    thread_broker.send(push("a"))
    assert bodies(thread_broker.claim(claim())) == ["a"]


@pytest.mark.usefixtures("interrupts")
def test_grant_of_an_interrupted_wait_is_released(thread_broker: Broker, watched: WatchedStore) -> None:
    """A turn has the claim when the interrupt comes: the broker waits for that turn."""
    interrupted = threading.Event()
    leave = thread_broker.long_polls.leave

    def noted(poll: LongPoll) -> bool:
        interrupted.set()
        return leave(poll)

    def interrupt_in_turn() -> None:
        until(lambda: len(thread_broker.long_polls) == 1)
        watched.hold()
        pushing = Errand(lambda: thread_broker.send(push("a")))
        assert watched.waiting.wait(PATIENCE)
        interrupt()
        assert interrupted.wait(PATIENCE)
        watched.gate.set()
        pushing.result()

    thread_broker.long_polls.leave = noted  # type: ignore[method-assign]
    interrupting = Errand(interrupt_in_turn)
    with pytest.raises(KeyboardInterrupt):
        thread_broker.claim(claim(), PATIENCE)
    interrupting.result()
    handed = thread_broker.claim(claim())
    assert bodies(handed) == ["a"]
    assert handed.claimed.grants[0].failures == 0
