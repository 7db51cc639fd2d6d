"""Wake-ups: a commit wakes the claims that it may serve, and no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackwise.clock import ManualClock
from ackwise.core.commands import ConfigureGroup, ConfigureQueue, PauseQueue, Redrive, SeekGroup, Sweep
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.queries import ListDead
from tests.broker.both_brokers import AnyBroker
from tests.broker.parked_claims import parked
from tests.broker.watched import SECOND, WatchedStore, bodies, claim, push, settle, until


def test_waiter_causes_no_turn_while_it_waits(watched_broker: AnyBroker, watched: WatchedStore) -> None:
    waiter = parked(watched_broker, claim())
    turns = len(watched.turns)
    watched_broker.send(push("other", queue="elsewhere"))
    assert len(watched.turns) == turns + 1
    watched_broker.send(push("a"))
    assert bodies(waiter.result()) == ["a"]


def test_wait_that_ends_says_why(watched_broker: AnyBroker) -> None:
    assert watched_broker.claim(claim(), 0.01).claimed.empty is EmptyReason.EMPTY
    watched_broker.send(PauseQueue(queue="q"))
    assert watched_broker.claim(claim(), 0.01).claimed.empty is EmptyReason.PAUSED


def test_every_group_gets_its_own(watched_broker: AnyBroker) -> None:
    waiters = [parked(watched_broker, claim(group=name)) for name in ("one", "two", "three")]
    watched_broker.send(push("a"))
    assert [bodies(w.result()) for w in waiters] == [["a"]] * 3


def test_waiter_for_another_partition_is_not_in_the_way(watched_broker: AnyBroker) -> None:
    elsewhere = parked(watched_broker, claim(partitions=("p1",)))
    here = parked(watched_broker, claim(partitions=("p2",)))
    watched_broker.send(push("a", partition="p2"))
    assert bodies(here.result()) == ["a"]
    until(lambda: len(watched_broker.long_polls) == 1)
    watched_broker.send(push("b", partition="p1"))
    assert bodies(elsewhere.result()) == ["b"]


def test_waiter_for_another_priority_is_not_in_the_way(watched_broker: AnyBroker) -> None:
    urgent = parked(watched_broker, claim(priorities=(5,)))
    plain = parked(watched_broker, claim(priorities=(0,)))
    watched_broker.send(push("a"))
    assert bodies(plain.result()) == ["a"]
    watched_broker.send(push("b", priority=5))
    assert bodies(urgent.result()) == ["b"]


def test_waiter_by_namespace(watched_broker: AnyBroker) -> None:
    watched_broker.send(ConfigureQueue(queue="mail", namespace="shop"))
    other = parked(watched_broker, claim(queue=None, namespace="bank"))
    waiter = parked(watched_broker, claim(queue=None, namespace="shop"))
    watched_broker.send(push("a", queue="mail"))
    assert bodies(waiter.result()) == ["a"]
    watched_broker.retry_parked()
    watched_broker.send(ConfigureQueue(queue="ledger", namespace="bank"))
    watched_broker.send(push("b", queue="ledger"))
    assert bodies(other.result()) == ["b"]


def test_message_wakes_one_of_many_waiters(watched_broker: AnyBroker, watched: WatchedStore) -> None:
    waiters = [parked(watched_broker, claim()) for _ in range(10)]
    watched_broker.send(push("a"))
    assert len(watched_broker.long_polls) == 9
    watched_broker.send(push(*"bcdefghij"))
    assert sorted(b for w in waiters for b in bodies(w.result())) == list("abcdefghij")


def resumed(watched_broker: AnyBroker, clock: ManualClock) -> None:
    watched_broker.send(PauseQueue(queue="q", paused=False))


def sought(watched_broker: AnyBroker, clock: ManualClock) -> None:
    watched_broker.send(SeekGroup(queue="q", group="__QUEUE_MODE__", to="start"))


def redriven(watched_broker: AnyBroker, clock: ManualClock) -> None:
    dead = watched_broker.ask(ListDead(queue="q")).letters
    watched_broker.send(Redrive(ids=[letter.id for letter in dead]))


def expired(watched_broker: AnyBroker, clock: ManualClock) -> None:
    clock.advance(61)
    watched_broker.send(Sweep())


def before_pause(watched_broker: AnyBroker) -> None:
    watched_broker.send(PauseQueue(queue="q"))


def before_held(watched_broker: AnyBroker) -> None:
    watched_broker.claim(claim(2))


def before_acked(watched_broker: AnyBroker) -> None:
    watched_broker.send(settle(watched_broker.claim(claim(2)).claimed))


def before_dead(watched_broker: AnyBroker) -> None:
    watched_broker.send(settle(watched_broker.claim(claim(2)).claimed, "reject"))


@pytest.mark.parametrize(
    ("before", "event"),
    [(before_pause, resumed), (before_acked, sought), (before_dead, redriven), (before_held, expired)],
)
def test_event_that_makes_messages_claimable_wakes_waiters(
    watched_broker: AnyBroker,
    clock: ManualClock,
    before: Callable[[AnyBroker], None],
    event: Callable[[AnyBroker, ManualClock], None],
) -> None:
    watched_broker.send(push("a", "b"))
    before(watched_broker)
    waiters = [parked(watched_broker, claim()) for _ in range(2)]
    event(watched_broker, clock)
    assert sorted(b for w in waiters for b in bodies(w.result())) == ["a", "b"]


@pytest.mark.parametrize("outcome", ["release", "retry"])
def test_returned_messages_wake_waiting_claims(watched_broker: AnyBroker, outcome: str) -> None:
    watched_broker.send(push("a", "b"))
    held = watched_broker.claim(claim(2)).claimed
    waiters = [parked(watched_broker, claim()) for _ in range(2)]
    watched_broker.send(settle(held, outcome))
    assert sorted(b for w in waiters for b in bodies(w.result())) == ["a", "b"]


def test_ack_opens_an_exclusive_lane(watched_broker: AnyBroker) -> None:
    watched_broker.send(push("a", "b"))
    held = watched_broker.claim(claim(exclusivity="partition")).claimed
    waiter = parked(watched_broker, claim(exclusivity="partition"))
    watched_broker.send(settle(held))
    assert bodies(waiter.result()) == ["b"]


def test_retry_that_becomes_due_wakes(watched_broker: AnyBroker, clock: ManualClock) -> None:
    watched_broker.send(push("a"))
    watched_broker.send(settle(watched_broker.claim(claim()).claimed, "retry", delay=30 * SECOND))
    waiter = parked(watched_broker, claim())
    clock.advance(29)
    until(lambda: len(watched_broker.long_polls) == 1)
    clock.advance(1)
    assert bodies(waiter.result()) == ["a"]


def test_new_group_at_the_end_waits_for_new_messages(watched_broker: AnyBroker) -> None:
    watched_broker.send(push("old"))
    watched_broker.send(ConfigureGroup(queue="q", group="g", start="new"))
    waiter = parked(watched_broker, claim(group="g"))
    watched_broker.send(push("new"))
    assert bodies(waiter.result()) == ["new"]
