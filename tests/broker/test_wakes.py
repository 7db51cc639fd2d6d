"""Who is woken: whoever may be served by what happened, whatever they wait for, and nobody else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackwise.broker import Broker
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim, ConfigureGroup, ConfigureQueue, PauseQueue, Redrive, SeekGroup, Sweep
from ackwise.core.queries import ListDead
from ackwise.store.clock import ManualClock
from tests.broker.watched import SECOND, Errand, WatchedStore, bodies, claim, push, settle, until

LONG = 60.0


def parked(desk: Broker, command: Claim) -> Errand:
    """A waiter that is asleep."""
    before = len(desk.waiters)
    errand = Errand(lambda: desk.claim(command, LONG))
    until(lambda: len(desk.waiters) > before)
    return errand


def test_nothing_asks_the_store_while_it_waits(desk: Broker, watched: WatchedStore) -> None:
    waiter = parked(desk, claim())
    turns = len(watched.turns)
    desk.send(push("other", queue="elsewhere"))
    assert len(watched.turns) == turns + 1
    desk.send(push("a"))
    assert bodies(waiter.result()) == ["a"]


def test_a_wait_that_ends_says_why(desk: Broker) -> None:
    assert desk.claim(claim(), 0.01).claimed.empty is EmptyReason.EMPTY
    desk.send(PauseQueue(queue="q"))
    assert desk.claim(claim(), 0.01).claimed.empty is EmptyReason.PAUSED


def test_every_group_gets_its_own(desk: Broker) -> None:
    waiters = [parked(desk, claim(group=name)) for name in ("one", "two", "three")]
    desk.send(push("a"))
    assert [bodies(w.result()) for w in waiters] == [["a"]] * 3


def test_a_waiter_for_another_partition_is_not_in_the_way(desk: Broker) -> None:
    elsewhere = parked(desk, claim(partitions=("p1",)))
    here = parked(desk, claim(partitions=("p2",)))
    desk.send(push("a", partition="p2"))
    assert bodies(here.result()) == ["a"]
    until(lambda: len(desk.waiters) == 1)
    desk.send(push("b", partition="p1"))
    assert bodies(elsewhere.result()) == ["b"]


def test_a_waiter_for_another_priority_is_not_in_the_way(desk: Broker) -> None:
    urgent = parked(desk, claim(priorities=(5,)))
    plain = parked(desk, claim(priorities=(0,)))
    desk.send(push("a"))
    assert bodies(plain.result()) == ["a"]
    desk.send(push("b", priority=5))
    assert bodies(urgent.result()) == ["b"]


def test_a_waiter_by_namespace(desk: Broker) -> None:
    desk.send(ConfigureQueue(queue="mail", namespace="shop"))
    other = parked(desk, claim(queue=None, namespace="bank"))
    waiter = parked(desk, claim(queue=None, namespace="shop"))
    desk.send(push("a", queue="mail"))
    assert bodies(waiter.result()) == ["a"]
    desk.look_again()
    desk.send(ConfigureQueue(queue="ledger", namespace="bank"))
    desk.send(push("b", queue="ledger"))
    assert bodies(other.result()) == ["b"]


def test_one_message_wakes_one_of_many(desk: Broker, watched: WatchedStore) -> None:
    waiters = [parked(desk, claim()) for _ in range(10)]
    desk.send(push("a"))
    assert len(desk.waiters) == 9
    desk.send(push(*"bcdefghij"))
    assert sorted(b for w in waiters for b in bodies(w.result())) == list("abcdefghij")


def resumed(desk: Broker, clock: ManualClock) -> None:
    desk.send(PauseQueue(queue="q", paused=False))


def sought(desk: Broker, clock: ManualClock) -> None:
    desk.send(SeekGroup(queue="q", group="__QUEUE_MODE__", to="start"))


def redriven(desk: Broker, clock: ManualClock) -> None:
    dead = desk.ask(ListDead(queue="q")).letters
    desk.send(Redrive(ids=[letter.id for letter in dead]))


def expired(desk: Broker, clock: ManualClock) -> None:
    clock.advance(61)
    desk.send(Sweep())


def before_pause(desk: Broker) -> None:
    desk.send(PauseQueue(queue="q"))


def before_held(desk: Broker) -> None:
    desk.claim(claim(2))


def before_acked(desk: Broker) -> None:
    desk.send(settle(desk.claim(claim(2)).claimed))


def before_dead(desk: Broker) -> None:
    desk.send(settle(desk.claim(claim(2)).claimed, "reject"))


@pytest.mark.parametrize(
    ("before", "event"),
    [(before_pause, resumed), (before_acked, sought), (before_dead, redriven), (before_held, expired)],
)
def test_whatever_makes_messages_claimable_wakes(
    desk: Broker,
    clock: ManualClock,
    before: Callable[[Broker], None],
    event: Callable[[Broker, ManualClock], None],
) -> None:
    desk.send(push("a", "b"))
    before(desk)
    waiters = [parked(desk, claim()) for _ in range(2)]
    event(desk, clock)
    assert sorted(b for w in waiters for b in bodies(w.result())) == ["a", "b"]


@pytest.mark.parametrize("outcome", ["release", "retry"])
def test_what_a_consumer_gives_back_goes_to_the_waiters(desk: Broker, outcome: str) -> None:
    desk.send(push("a", "b"))
    held = desk.claim(claim(2)).claimed
    waiters = [parked(desk, claim()) for _ in range(2)]
    desk.send(settle(held, outcome))
    assert sorted(b for w in waiters for b in bodies(w.result())) == ["a", "b"]


def test_an_ack_opens_an_exclusive_lane(desk: Broker) -> None:
    desk.send(push("a", "b"))
    held = desk.claim(claim(exclusivity="partition")).claimed
    waiter = parked(desk, claim(exclusivity="partition"))
    desk.send(settle(held))
    assert bodies(waiter.result()) == ["b"]


def test_a_retry_that_becomes_due_wakes(desk: Broker, clock: ManualClock) -> None:
    desk.send(push("a"))
    desk.send(settle(desk.claim(claim()).claimed, "retry", delay=30 * SECOND))
    waiter = parked(desk, claim())
    clock.advance(29)
    until(lambda: len(desk.waiters) == 1)
    clock.advance(1)
    assert bodies(waiter.result()) == ["a"]


def test_a_new_group_at_the_end_waits_for_new_messages(desk: Broker) -> None:
    desk.send(push("old"))
    desk.send(ConfigureGroup(queue="q", group="g", start="new"))
    waiter = parked(desk, claim(group="g"))
    desk.send(push("new"))
    assert bodies(waiter.result()) == ["new"]
