"""What a review found: frozen loops, leaked leases, herds, and wake-ups that were missed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from ackwise.broker import AsyncBroker, Broker, duties
from ackwise.broker.waiting import Waiters, Waiting
from ackwise.core.answers import Claimed
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import Claim, Command, ConfigureQueue, Push
from ackwise.core.messages import NewMessage
from ackwise.core.queries import ListLeases, ListQueues
from ackwise.store.clock import ManualClock
from ackwise.store.port import Prepared
from ackwise.store.sqlite import SQLiteStore
from tests.broker.test_ends import on_loop, parked
from tests.broker.test_wakes import LONG
from tests.broker.test_wakes import parked as asleep
from tests.broker.watched import PATIENCE, SECOND, Errand, WatchedStore, bodies, claim, push, settle, until


class TallyStore(WatchedStore):
    """Counts claims, and lets a test break a commit."""

    claims = 0
    break_commit: BaseException | None = None

    def prepare(self, commands: Sequence[Command], shard: int = 0) -> Prepared:  # type: ignore[override]
        self.claims += sum(isinstance(command, Claim) for command in commands)
        prepared = super().prepare(commands, shard)
        problem, self.break_commit = self.break_commit, None
        return Broken(prepared, problem) if problem is not None else prepared


class Broken:
    """A turn that is interrupted right before its commit."""

    def __init__(self, prepared: Prepared, problem: BaseException) -> None:
        self.results, self.woken, self.abandon = prepared.results, prepared.woken, prepared.abandon
        self._problem = problem

    def commit(self) -> None:
        raise self._problem


@pytest.fixture
def watched(url: str, clock: ManualClock) -> TallyStore:
    return TallyStore(url, clock)


# event loop


def test_readers_at_work_do_not_hold_up_a_loop_that_hands_over(watched: TallyStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        await broker.send(push("a"))
        watched._cache._segments.clear()
        with watched._readers.use(), watched._readers.use():
            assert bodies(await broker.claim(claim())) == ["a"]

    on_loop(watched, job)


def test_a_long_hand_over_is_read_in_a_thread(watched: TallyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackwise.broker.loop.SHORT_READ", 1)
    readers: list[int] = []
    read = watched.read

    def noted(claimed: Claimed) -> Any:
        readers.append(threading.get_ident())
        return read(claimed)

    monkeypatch.setattr(watched, "read", noted)

    async def job(broker: AsyncBroker) -> None:
        await broker.send(push("a", "b", "c"))
        assert bodies(await broker.claim(claim(1))) == ["a"]
        assert bodies(await broker.claim(claim(2))) == ["b", "c"]
        assert [reader == threading.get_ident() for reader in readers] == [True, False]

    on_loop(watched, job)


def test_commits_do_not_wait_for_queries(watched: TallyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(watched, "list_queues", lambda query: go_on.wait(PATIENCE))

    async def job(broker: AsyncBroker) -> None:
        asking = [asyncio.create_task(broker.ask(ListQueues())) for _ in range(8)]
        await asyncio.sleep(0)
        try:
            assert (await broker.send(push("a")))[0].status == "queued"
            assert not any(one.done() for one in asking)
        finally:
            go_on.set()
        await asyncio.gather(*asking)

    on_loop(watched, job)


def test_a_commit_cancelled_before_it_starts_lets_go_of_the_lock(watched: TallyStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        go_on = threading.Event()
        busy = broker._turns.submit(go_on.wait, PATIENCE)
        sending = asyncio.create_task(broker.send(push("lost")))
        while not watched._write_lock.locked():
            await asyncio.sleep(0)
        for task in list(broker._tasks):
            task.cancel()
        with pytest.raises(Exception, match="interrupted"):
            await sending
        assert not watched._write_lock.locked()
        go_on.set()
        assert busy.result(PATIENCE)
        assert (await broker.send(push("a")))[0].status == "queued"
        assert bodies(await broker.claim(claim(9))) == ["a"]

    on_loop(watched, job)


def test_a_claim_that_commits_while_its_loop_closes_is_given_back(
    watched: TallyStore, url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        broker = await AsyncBroker.start(watched, background=False)
        await broker.send(push("a"))
        reached, go_on = threading.Event(), threading.Event()
        commit = watched.commit

        def slow(turn: Any) -> None:
            reached.set()
            assert go_on.wait(PATIENCE)
            commit(turn)

        monkeypatch.setattr(watched, "commit", slow)
        late = asyncio.create_task(broker.claim(claim()))
        await asyncio.to_thread(reached.wait, PATIENCE)
        closing = asyncio.create_task(broker.close())
        while not broker._closed.is_set():
            await asyncio.sleep(0)
        go_on.set()
        assert (await late).claimed.empty is EmptyReason.DRAINING
        await closing

    asyncio.run(run())
    assert_nothing_held(url, clock)


# threads


def assert_nothing_held(url: str, clock: ManualClock) -> None:
    store = SQLiteStore(url, clock=clock)
    try:
        assert store.list_leases(ListLeases()) == []
        (claimed,) = store.transact([claim()])
        assert claimed.grants[0].failures == 0
    finally:
        store.close()


def test_a_claim_that_commits_while_closing_is_given_back(watched: TallyStore, url: str, clock: ManualClock) -> None:
    broker = Broker(watched, background=False)
    broker.send(push("a"))
    watched.hold()
    late = Errand(lambda: broker.claim(claim()))
    assert watched.waiting.wait(PATIENCE)
    closing = Errand(broker.close)
    until(broker._closed.is_set)
    watched.gate.set()
    assert late.result().claimed.empty is EmptyReason.DRAINING
    closing.result()
    assert_nothing_held(url, clock)


@pytest.mark.parametrize("problem", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_a_turn_that_is_not_committed_lets_go_of_the_lock(
    desk: Broker, watched: TallyStore, problem: BaseException
) -> None:
    watched.break_commit = problem
    with pytest.raises(type(problem)):
        desk.send(push("lost"))
    assert Errand(lambda: desk.send(push("a"))).result()[0].status == "queued"
    assert bodies(desk.claim(claim(9))) == ["a"]


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


def test_readers_share_their_connections_without_a_race(watched: TallyStore) -> None:
    def work() -> None:
        for _ in range(50):
            watched.list_leases(ListLeases())

    readers = [Errand(work) for _ in range(8)]
    for one in readers:
        one.result()
    assert len(watched._readers._free) <= 2
    watched.close()
    assert watched._readers._free == []


def test_a_reader_that_comes_back_late_is_closed(watched: TallyStore) -> None:
    with watched._readers.use():
        watched.close()
    assert watched._readers._free == []
    with pytest.raises(Exception, match="closed"):
        watched.list_leases(ListLeases())
