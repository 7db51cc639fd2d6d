"""Wake-ups: a commit wakes enough waiting claims, never all of them, and forgets none."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from ackwise.broker import Broker, maintenance
from ackwise.broker.long_polls import LongPoll, LongPolls
from ackwise.broker.steps import Park
from ackwise.clock import ManualClock
from ackwise.core.answers import Claimed
from ackwise.core.commands import Command, ConfigureQueue, Push
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.messages import NewMessage
from ackwise.store.sqlite import SQLiteStore
from tests.broker.both_brokers import AnyBroker, waiting
from tests.broker.parked_claims import parked as asleep
from tests.broker.parked_claims import unparked_after_commit
from tests.broker.tally import TallyStore
from tests.broker.watched import SECOND, Errand, bodies, claim, push, settle, until
from tests.patience import PATIENCE


@pytest.fixture
def watched(url: str, clock: ManualClock) -> TallyStore:
    return TallyStore(url, clock)


def test_interrupt_while_choosing_riders_wakes_all_callers(
    thread_broker: Broker, watched: TallyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on = threading.Event(), threading.Event()
    long_polls = thread_broker.long_polls
    ride = long_polls.ride
    assert long_polls.park(LongPoll(claim(queue="other"), lambda: None), long_polls.version("other"))

    def interrupted(*_: object) -> None:
        inside.set()
        assert go_on.wait(PATIENCE)
        monkeypatch.setattr(thread_broker.long_polls, "ride", ride)
        raise KeyboardInterrupt

    monkeypatch.setattr(thread_broker.long_polls, "ride", interrupted)
    leader = Errand(lambda: thread_broker.send(push("a")))
    assert inside.wait(PATIENCE)
    follower = Errand(lambda: thread_broker.send(push("b")))
    until(lambda: waiting(thread_broker) == 1)
    go_on.set()
    with pytest.raises(KeyboardInterrupt):
        leader.result()
    assert follower.result()[0].status == "queued"


def test_invalid_commands_wake_no_claim_and_fail_alone(watched_broker: AnyBroker) -> None:
    waiter = asleep(watched_broker, claim())
    bad: list[Any] = [
        Push(queue="q", messages=iter([NewMessage(b"x")])),  # type: ignore[arg-type]
        Push(queue=[], messages=[NewMessage(b"x")]),  # type: ignore[arg-type]
        Push(queue="q", messages=[NewMessage(b"x", partition=[])]),  # type: ignore[arg-type]
    ]
    results = watched_broker.send_all([*bad, push("a")])
    assert all(isinstance(result, Exception) for result in results[:3])
    assert bodies(waiter.result()) == ["a"]


# who is woken


def test_idle_long_polls_elsewhere_cost_nothing(watched_broker: AnyBroker, watched: TallyStore) -> None:
    idle = [
        asleep(watched_broker, claim(queue=f"idle{n}", create=None))
        for n in range(16)
        if make(watched_broker, f"idle{n}")
    ]
    watched_broker.send(push(*map(str, range(200))))
    watched.claims = 0
    for _ in range(200):
        watched_broker.send(settle(watched_broker.claim(claim()).claimed))
    assert watched.claims == 200
    watched_broker.drain()
    assert {one.result().claimed.empty for one in idle} == {EmptyReason.DRAINING}


def make(watched_broker: AnyBroker, queue: str) -> bool:
    watched_broker.send(ConfigureQueue(queue=queue))
    return True


def test_idle_long_polls_on_an_exclusive_queue_are_no_herd(watched_broker: AnyBroker, watched: TallyStore) -> None:
    """Each settlement ends an exclusive hold; a few look whether there is something, not all."""
    idle = [asleep(watched_broker, claim(exclusivity="partition")) for _ in range(32)]
    busy = partial(claim, exclusivity="partition", group="busy")
    watched_broker.send(push("a"))
    until(lambda: len(watched_broker.long_polls) == 31)
    watched.claims = 0
    for _ in range(20):
        held = watched_broker.claim(busy()).claimed
        watched_broker.send(settle(held, "release"))
        until(lambda: len(watched_broker.long_polls) == 31)
    assert watched.claims <= 20 * 6
    watched_broker.drain()
    assert sorted(body for one in idle for body in bodies(one.result())) == ["a"]


def test_rider_that_finds_nothing_sleeps_on(watched_broker: AnyBroker, watched: TallyStore) -> None:
    urgent = asleep(watched_broker, claim(priorities=(5,)))
    watched.claims, turns = 0, len(watched.turns)
    for n in range(10):
        watched_broker.send(push(str(n)))
    assert (watched.claims, len(watched.turns), len(watched_broker.long_polls)) == (10, turns + 10, 1)
    watched_broker.send(push("urgent", priority=5))
    assert bodies(urgent.result()) == ["urgent"]


def test_rider_whose_time_is_up_comes_back(watched_broker: AnyBroker, watched: TallyStore) -> None:
    """It waits for the turn that has it, which must not park it again."""
    urgent = Errand(lambda: watched_broker.claim(claim(priorities=(5,)), 2.0))
    until(lambda: len(watched_broker.long_polls) == 1)
    watched.hold()
    pushing = Errand(lambda: watched_broker.send(push("a")))
    assert watched.waiting.wait(PATIENCE)
    until(lambda: not len(watched_broker.long_polls))
    urgent.join(2.1)
    watched.gate.set()
    pushing.result()
    assert urgent.result().claimed.empty is EmptyReason.EMPTY


def rider(queue: str = "q", **more: Any) -> LongPoll:
    return LongPoll(claim(queue=queue, **more), lambda: None)


def test_rider_is_told_when_it_has_to_look_earlier() -> None:
    long_polls = LongPolls()
    early, late = rider(), rider()
    early.until, late.until = 50, 200
    for poll in (early, late):
        assert long_polls.park(poll, long_polls.version("q"))
    riders: list[LongPoll] = []
    long_polls.ride([push("a", "b")], riders)
    for poll in riders:
        poll.results = [Claimed("g", [], empty=EmptyReason.DELAYED, until=100)]
    assert unparked_after_commit(long_polls, {"q": 1}, riders) == [late]
    assert (early.parked, late.seen) == (True, long_polls.version("q"))


def test_queue_is_watched_until_its_version_changes() -> None:
    long_polls = LongPolls()
    seen = long_polls.version("q")
    long_polls.version("other")
    unparked_after_commit(long_polls, {"other": 1}, [])
    assert long_polls.watched == {"q"}
    unparked_after_commit(long_polls, {"q": 1}, [])
    assert long_polls.watched == set()
    assert not long_polls.park(rider(), seen)


def test_queue_with_parked_claims_stays_watched() -> None:
    long_polls = LongPolls()
    for _ in range(2):
        assert long_polls.park(rider(), long_polls.version("q"))
    assert len(unparked_after_commit(long_polls, {"q": 1}, [])) == 1
    assert long_polls.watched == {"q"}


def test_watched_names_are_bounded_and_none_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers may name any number of queues that do not exist."""
    monkeypatch.setattr("ackwise.broker.long_polls.MOST_WATCHED", 3)
    long_polls = LongPolls()
    for number in range(10):
        long_polls.version(f"q{number}")
    assert len(long_polls.watched) == 4
    seen = long_polls.version("q9")
    for number in range(9):
        unparked_after_commit(long_polls, {f"q{number}": 1}, [])
    assert long_polls.watched, "a commit to q9 still changes its version"
    unparked_after_commit(long_polls, {"q9": 1}, [])
    assert not long_polls.park(rider("q9"), seen)


def test_commit_between_try_and_park_is_not_missed(thread_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    parked: list[bool] = []

    def park_late(step: Park) -> None:
        thread_broker.send(Push(queue="other", messages=[NewMessage(b"x")]))
        thread_broker.send(push("a"))
        parked.append(thread_broker.long_polls.park(step.poll, step.seen))

    monkeypatch.setattr(thread_broker, "_park", park_late)
    assert bodies(thread_broker.claim(claim(), PATIENCE)) == ["a"]
    assert parked == [False]


def test_rider_that_missed_a_wake_up_tries_again() -> None:
    long_polls = LongPolls()
    poll = rider()
    assert long_polls.park(poll, long_polls.version("q"))
    riders: list[LongPoll] = []
    long_polls.ride([push("a")], riders)
    unparked_after_commit(long_polls, {"q": 1}, [])
    poll.results = [Claimed("g", [], empty=EmptyReason.EMPTY)]
    assert unparked_after_commit(long_polls, {}, riders) == [poll]
    assert poll.results == []


def test_strict_waiter_does_not_stand_before_a_relaxed_one(watched_broker: AnyBroker) -> None:
    watched_broker.send(push("first"))
    watched_broker.send(settle(watched_broker.claim(claim()).claimed, "retry", delay=600 * SECOND))
    strict = asleep(watched_broker, claim(order="strict"))
    relaxed = asleep(watched_broker, claim(order="relaxed"))
    watched_broker.send(push("second"))
    assert bodies(relaxed.result()) == ["second"]
    watched_broker.drain()
    assert strict.result().claimed.empty is EmptyReason.DRAINING


def test_stranger_does_not_stand_before_the_owner(watched_broker: AnyBroker) -> None:
    watched_broker.send(push("first"))
    watched_broker.claim(claim(exclusivity="partition", owner="me"))
    strangers = [asleep(watched_broker, claim(exclusivity="partition", owner=name)) for name in ("you", "he", "she")]
    owner = asleep(watched_broker, claim(exclusivity="partition", owner="me"))
    watched_broker.send(push("second"))
    assert bodies(owner.result()) == ["second"]
    watched_broker.drain()
    assert {one.result().claimed.empty for one in strangers} == {EmptyReason.DRAINING}


@pytest.mark.parametrize("queues", [1, 20])
def test_settlements_wake_however_many_queues_are_waited_on(watched_broker: AnyBroker, queues: int) -> None:
    idle = [asleep(watched_broker, claim(queue=f"idle{n}")) for n in range(queues) if make(watched_broker, f"idle{n}")]
    watched_broker.send(push("a", "b"))
    held = watched_broker.claim(claim(exclusivity="partition")).claimed
    waiter = asleep(watched_broker, claim(exclusivity="partition"))
    watched_broker.send(settle(held))
    assert bodies(waiter.result()) == ["b"]
    watched_broker.drain()
    assert len([one.result() for one in idle]) == queues


def test_waiter_that_gives_up_leaves_the_due_time_to_another(watched_broker: AnyBroker) -> None:
    watched_broker.send(push("a"))
    held = watched_broker.claim(claim()).claimed
    first = Errand(lambda: watched_broker.claim(claim(), 0.3))
    until(lambda: len(watched_broker.long_polls) == 1)
    second = asleep(watched_broker, claim())
    watched_broker.send(settle(held, "retry", delay=600 * SECOND))
    assert first.result().claimed.empty is EmptyReason.DELAYED
    until(
        lambda: (
            [s.until is not None for w in watched_broker.long_polls.parked.values() for p in w.values() for s in p]
            == [True]
        )
    )
    watched_broker.drain()
    second.result()


# the net below


def behind_its_back(store: SQLiteStore, command: Command) -> None:
    """A commit that the broker does not hear of."""
    store.transact([command])


def test_missed_wake_up_is_made_good(watched_broker: AnyBroker, watched: TallyStore) -> None:
    waiters = [asleep(watched_broker, claim()) for _ in range(3)]
    behind_its_back(watched, push("a", "b", "c"))
    watched_broker.retry_scouts()
    assert sorted(b for one in waiters for b in bodies(one.result())) == ["a", "b", "c"]


def test_scout_of_each_kind_looks_in_each_round() -> None:
    long_polls = LongPolls()
    polls = [rider(queue, order=order) for queue in "ab" for order in ("strict", "relaxed") for _ in range(5)]
    for poll in polls:
        assert long_polls.park(poll, long_polls.version(poll.queue))
    for start in (0.0, maintenance.SCOUT_EVERY):
        sent = [
            poll for tick in range(200) for poll in long_polls.unpark_scouts(start + tick * maintenance.WATCH_EVERY)
        ]
        assert sorted((poll.queue, poll.kind[1]) for poll in sent) == [
            (queue, order) for queue in "ab" for order in ("relaxed", "strict")
        ]


def test_many_kinds_do_not_look_in_the_same_moment() -> None:
    long_polls = LongPolls()
    polls = [rider(f"q{n}") for n in range(1000)]
    for poll in polls:
        assert long_polls.park(poll, long_polls.version(poll.queue))
    ticks = int(maintenance.SCOUT_EVERY / maintenance.WATCH_EVERY)
    sent = [len(long_polls.unpark_scouts(tick * maintenance.WATCH_EVERY)) for tick in range(ticks)]
    assert sum(sent) == 1000
    assert max(sent) < 20
