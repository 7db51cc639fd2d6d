"""No caller is blocked: event loops do not freeze, locks are released, leases are returned."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ackwise.broker import AsyncBroker, Broker
from ackwise.clock import ManualClock
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.queries import ListLeases, ListQueues
from ackwise.store.sqlite import SQLiteStore
from tests.broker.async_runs import on_loop
from tests.broker.both_brokers import StartBroker
from tests.broker.tally import TallyStore
from tests.broker.watched import Errand, bodies, claim, push, until
from tests.patience import PATIENCE


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


def test_long_hand_over_is_read_in_a_thread(watched: TallyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ackwise.broker.deliveries.SHORT_READ", 1)
    readers: list[int] = []
    read = watched.read

    def noted(ranges: Any) -> Any:
        readers.append(threading.get_ident())
        return read(ranges)

    monkeypatch.setattr(watched, "read", noted)

    async def job(broker: AsyncBroker) -> None:
        await broker.send(push("a", "b", "c"))
        assert bodies(await broker.claim(claim(1))) == ["a"]
        assert bodies(await broker.claim(claim(2))) == ["b", "c"]
        assert [reader == threading.get_ident() for reader in readers] == [True, False]

    on_loop(watched, job)


def test_commits_do_not_wait_for_queries(watched: TallyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(watched, "ask", lambda query: go_on.wait(PATIENCE))

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


def test_commit_cancelled_before_it_starts_lets_go_of_the_lock(watched: TallyStore) -> None:
    async def job(broker: AsyncBroker) -> None:
        go_on = threading.Event()
        busy = broker._turns.submit(go_on.wait, PATIENCE)
        sending = asyncio.create_task(broker.send(push("lost")))
        while not watched._writer.lock.locked():
            await asyncio.sleep(0)
        for task in list(broker._tasks):
            task.cancel()
        with pytest.raises(Exception, match="interrupted"):
            await sending
        assert not watched._writer.lock.locked()
        go_on.set()
        assert busy.result(PATIENCE)
        assert (await broker.send(push("a")))[0].status == "queued"
        assert bodies(await broker.claim(claim(9))) == ["a"]

    on_loop(watched, job)


# closing and locks


def assert_nothing_held(url: str, clock: ManualClock) -> None:
    store = SQLiteStore(url, clock=clock)
    try:
        assert store.ask(ListLeases()) == []
        (claimed,) = store.transact([claim()])
        assert claimed.grants[0].failures == 0
    finally:
        store.close()


def test_claim_that_commits_while_closing_is_given_back(
    watched: TallyStore, url: str, clock: ManualClock, start_broker: StartBroker
) -> None:
    broker = start_broker(watched)
    broker.send(push("a"))
    watched.hold()
    late = Errand(lambda: broker.claim(claim()))
    assert watched.waiting.wait(PATIENCE)
    closing = Errand(broker.close)
    until(lambda: broker.closed)
    watched.gate.set()
    assert late.result().claimed.empty is EmptyReason.DRAINING
    closing.result()
    assert_nothing_held(url, clock)


@pytest.mark.parametrize("problem", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_turn_that_is_not_committed_lets_go_of_the_lock(
    thread_broker: Broker, watched: TallyStore, problem: BaseException
) -> None:
    watched.break_commit = problem
    with pytest.raises(type(problem)):
        thread_broker.send(push("lost"))
    assert Errand(lambda: thread_broker.send(push("a"))).result()[0].status == "queued"
    assert bodies(thread_broker.claim(claim(9))) == ["a"]


def test_readers_share_their_connections_without_a_race(watched: TallyStore) -> None:
    def work() -> None:
        for _ in range(50):
            watched.ask(ListLeases())

    readers = [Errand(work) for _ in range(8)]
    for one in readers:
        one.result()
    assert len(watched._readers._free) <= 2
    watched.close()
    assert watched._readers._free == []


def test_reader_that_comes_back_late_is_closed(watched: TallyStore) -> None:
    with watched._readers.use():
        watched.close()
    assert watched._readers._free == []
    with pytest.raises(Exception, match="closed"):
        watched.ask(ListLeases())
