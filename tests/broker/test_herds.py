"""Who is woken: enough waiters, never a herd, and nobody is forgotten."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from ackwise.broker import AsyncBroker, Broker, duties
from ackwise.broker.waiting import Waiters, Waiting
from ackwise.core.answers import Claimed
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Command, ConfigureQueue, Push
from ackwise.core.messages import NewMessage
from ackwise.store.clock import ManualClock
from ackwise.store.sqlite import SQLiteStore
from tests.broker.tally import TallyStore
from tests.broker.test_ends import on_loop, parked
from tests.broker.test_wakes import LONG
from tests.broker.test_wakes import parked as asleep
from tests.broker.watched import PATIENCE, SECOND, Errand, bodies, claim, push, settle, until


@pytest.fixture
def watched(url: str, clock: ManualClock) -> TallyStore:
    return TallyStore(url, clock)


def test_an_interrupt_while_riders_are_chosen_leaves_nobody_asleep(
    desk: Broker, watched: TallyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on = threading.Event(), threading.Event()
    ride = desk.waiters.ride

    def interrupted(*_: object) -> None:
        inside.set()
        assert go_on.wait(PATIENCE)
        monkeypatch.setattr(desk.waiters, "ride", ride)
        raise KeyboardInterrupt

    monkeypatch.setattr(desk.waiters, "ride", interrupted)
    leader = Errand(lambda: desk.send(push("a")))
    assert inside.wait(PATIENCE)
    follower = Errand(lambda: desk.send(push("b")))
    until(lambda: len(desk._lanes[0]._pending) == 1)
    go_on.set()
    with pytest.raises(KeyboardInterrupt):
        leader.result()
    assert follower.result()[0].status == "queued"


def test_commands_that_make_no_sense_serve_nobody_and_fail_alone(desk: Broker) -> None:
    waiter = asleep(desk, claim())
    bad: list[Any] = [
        Push(queue="q", messages=iter([NewMessage(b"x")])),  # type: ignore[arg-type]
        Push(queue=[], messages=[NewMessage(b"x")]),  # type: ignore[arg-type]
        Push(queue="q", messages=[NewMessage(b"x", partition=[])]),  # type: ignore[arg-type]
    ]
    results = desk.send_all([*bad, push("a")])
    assert all(isinstance(result, Exception) for result in results[:3])
    assert bodies(waiter.result()) == ["a"]


# who is woken


def test_idle_long_polls_elsewhere_cost_nothing(desk: Broker, watched: TallyStore) -> None:
    idle = [asleep(desk, claim(queue=f"idle{n}", create=None)) for n in range(16) if make(desk, f"idle{n}")]
    desk.send(push(*map(str, range(200))))
    watched.claims = 0
    for _ in range(200):
        desk.send(settle(desk.claim(claim()).claimed))
    assert watched.claims == 200
    desk.drain()
    assert {one.result().claimed.empty for one in idle} == {EmptyReason.DRAINING}


def make(desk: Broker, queue: str) -> bool:
    desk.send(ConfigureQueue(queue=queue))
    return True


def test_idle_long_polls_on_an_exclusive_queue_are_no_herd(desk: Broker, watched: TallyStore) -> None:
    """Each settlement ends an exclusive hold; a few look whether there is something, not all."""
    idle = [asleep(desk, claim(exclusivity="partition")) for _ in range(32)]
    busy = partial(claim, exclusivity="partition", group="busy")
    desk.send(push("a"))
    until(lambda: len(desk.waiters) == 31)
    watched.claims = 0
    for _ in range(20):
        held = desk.claim(busy()).claimed
        desk.send(settle(held, "release"))
        until(lambda: len(desk.waiters) == 31)
    assert watched.claims <= 20 * 6
    desk.drain()
    assert sorted(body for one in idle for body in bodies(one.result())) == ["a"]


def test_a_rider_that_finds_nothing_sleeps_on(desk: Broker, watched: TallyStore) -> None:
    urgent = asleep(desk, claim(priorities=(5,)))
    watched.claims, turns = 0, len(watched.turns)
    for n in range(10):
        desk.send(push(str(n)))
    assert (watched.claims, len(watched.turns), len(desk.waiters)) == (10, turns + 10, 1)
    desk.send(push("urgent", priority=5))
    assert bodies(urgent.result()) == ["urgent"]


def test_a_rider_whose_time_is_up_comes_back(desk: Broker, watched: TallyStore) -> None:
    """It waits for the turn that has it, which must not park it again."""
    urgent = Errand(lambda: desk.claim(claim(priorities=(5,)), 0.2))
    until(lambda: len(desk.waiters) == 1)
    watched.hold()
    pushing = Errand(lambda: desk.send(push("a")))
    assert watched.waiting.wait(PATIENCE)
    until(lambda: not len(desk.waiters))
    urgent.join(0.3)
    watched.gate.set()
    pushing.result()
    assert urgent.result().claimed.empty is EmptyReason.EMPTY


def rider(queue: str = "q", **more: Any) -> Waiting:
    return Waiting(claim(queue=queue, **more), lambda: None)


def test_a_rider_is_told_when_it_has_to_look_earlier() -> None:
    waiters = Waiters()
    early, late = rider(), rider()
    early.until, late.until = 50, 200
    for slot in (early, late):
        assert waiters.park(slot, waiters.version("q"))
    riders: list[Waiting] = []
    waiters.ride([push("a", "b")], riders)
    for slot in riders:
        slot.results = [Claimed("g", [], empty=EmptyReason.DELAYED, until=100)]
    assert waiters.served({"q": 1}, riders) == [late]
    assert (early.parked, late.seen) == (True, waiters.version("q"))


def test_a_rider_that_missed_a_wake_up_tries_again() -> None:
    waiters = Waiters()
    slot = rider()
    assert waiters.park(slot, waiters.version("q"))
    riders: list[Waiting] = []
    waiters.ride([push("a")], riders)
    waiters.served({"q": 1}, [])
    slot.results = [Claimed("g", [], empty=EmptyReason.EMPTY)]
    assert waiters.served({}, riders) == [slot]
    assert slot.results == []


def test_a_strict_waiter_does_not_stand_before_a_relaxed_one(desk: Broker) -> None:
    desk.send(push("first"))
    desk.send(settle(desk.claim(claim()).claimed, "retry", delay=600 * SECOND))
    strict = asleep(desk, claim(order="strict"))
    relaxed = asleep(desk, claim(order="relaxed"))
    desk.send(push("second"))
    assert bodies(relaxed.result()) == ["second"]
    desk.drain()
    assert strict.result().claimed.empty is EmptyReason.DRAINING


def test_a_stranger_does_not_stand_before_the_owner(desk: Broker) -> None:
    desk.send(push("first"))
    desk.claim(claim(exclusivity="partition", owner="me"))
    strangers = [asleep(desk, claim(exclusivity="partition", owner=name)) for name in ("you", "he", "she")]
    owner = asleep(desk, claim(exclusivity="partition", owner="me"))
    desk.send(push("second"))
    assert bodies(owner.result()) == ["second"]
    desk.drain()
    assert {one.result().claimed.empty for one in strangers} == {EmptyReason.DRAINING}


@pytest.mark.parametrize("queues", [1, 20])
def test_settlements_wake_however_many_queues_are_waited_on(desk: Broker, queues: int) -> None:
    idle = [asleep(desk, claim(queue=f"idle{n}")) for n in range(queues) if make(desk, f"idle{n}")]
    desk.send(push("a", "b"))
    held = desk.claim(claim(exclusivity="partition")).claimed
    waiter = asleep(desk, claim(exclusivity="partition"))
    desk.send(settle(held))
    assert bodies(waiter.result()) == ["b"]
    desk.drain()
    assert len([one.result() for one in idle]) == queues


def test_who_gives_up_leaves_the_due_time_to_another(desk: Broker) -> None:
    desk.send(push("a"))
    held = desk.claim(claim()).claimed
    first = Errand(lambda: desk.claim(claim(), 0.3))
    until(lambda: len(desk.waiters) == 1)
    second = asleep(desk, claim())
    desk.send(settle(held, "retry", delay=600 * SECOND))
    assert first.result().claimed.empty is EmptyReason.DELAYED
    until(lambda: [s.until is not None for w in desk.waiters._parked.values() for p in w.values() for s in p] == [True])
    desk.drain()
    second.result()


# the net below


def behind_its_back(store: SQLiteStore, command: Command) -> None:
    """A commit that the broker does not hear of."""
    store.transact([command])


def test_a_missed_wake_up_is_made_good(desk: Broker, watched: TallyStore) -> None:
    waiters = [asleep(desk, claim()) for _ in range(3)]
    behind_its_back(watched, push("a", "b", "c"))
    desk.send_scouts()
    assert sorted(b for one in waiters for b in bodies(one.result())) == ["a", "b", "c"]


def test_a_missed_wake_up_is_made_good_on_a_loop(watched: TallyStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        await broker.send(ConfigureQueue(queue="q"))
        waiting = [asyncio.create_task(broker.claim(claim(), LONG)) for _ in range(3)]
        await parked(broker, 3)
        behind_its_back(watched, push("a", "b", "c"))
        broker.send_scouts()
        assert sorted(b for handed in await asyncio.gather(*waiting) for b in bodies(handed)) == ["a", "b", "c"]

    on_loop(watched, job)


def test_one_of_each_kind_looks_in_each_round() -> None:
    waiters = Waiters()
    slots = [rider(queue, order=order) for queue in "ab" for order in ("strict", "relaxed") for _ in range(5)]
    for slot in slots:
        assert waiters.park(slot, waiters.version(slot.queue))
    for start in (0.0, duties.LOOK_EVERY):
        sent = [slot for tick in range(200) for slot in waiters.scouts(start + tick * duties.WATCH_EVERY)]
        assert sorted((slot.queue, slot.kind[1]) for slot in sent) == [
            (queue, order) for queue in "ab" for order in ("relaxed", "strict")
        ]


def test_many_kinds_do_not_look_in_the_same_moment() -> None:
    waiters = Waiters()
    slots = [rider(f"q{n}") for n in range(1000)]
    for slot in slots:
        assert waiters.park(slot, waiters.version(slot.queue))
    ticks = int(duties.LOOK_EVERY / duties.WATCH_EVERY)
    sent = [len(waiters.scouts(tick * duties.WATCH_EVERY)) for tick in range(ticks)]
    assert sum(sent) == 1000
    assert max(sent) < 20


# readers
