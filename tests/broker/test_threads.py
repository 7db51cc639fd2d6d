"""Turns, waiters and drain, from threads."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial

import pytest

from ackwise.broker import Broker
from ackwise.broker import pending as pending_module
from ackwise.broker.waiting import Seen, Waiting
from ackwise.core.claiming import EmptyReason
from ackwise.core.commands import ByLease, Claim, Command, ConfigureQueue, Push, Settle, Settlement
from ackwise.core.errors import BadInput, Draining, Overloaded, StoreError, StoreUnavailable
from ackwise.core.messages import NewMessage
from ackwise.core.queries import QueueStats
from ackwise.core.settlement import Outcome
from ackwise.store.clock import ManualClock
from ackwise.store.sqlite import SQLiteStore
from tests.broker.support import CountingStore, ack, claim, payloads, push
from tests.broker.watched import PATIENCE, Errand


def parked(broker: Broker, count: int = 1) -> None:
    """Wait until that many claims are parked."""
    end = time.monotonic() + PATIENCE
    while len(broker.waiters) < count:
        assert time.monotonic() < end, "nobody parked"
        time.sleep(0.001)


def test_a_waiter_gets_what_is_pushed_later(broker: Broker, store: CountingStore) -> None:
    waiting = Errand(lambda: payloads(broker.claim(claim(), PATIENCE)))
    parked(broker)
    turns = store.turns
    broker.send(push(b"1"))
    assert waiting.result() == [b"1"]
    assert store.turns == turns + 1, "push and hand-over share a turn"


def test_as_many_waiters_are_served_as_there_are_messages(broker: Broker) -> None:
    waiting = [Errand(lambda: payloads(broker.claim(claim(), PATIENCE))) for _ in range(3)]
    parked(broker, 3)
    broker.send(push(b"1", b"2"))
    parked(broker, 1)
    broker.send(push(b"3"))
    assert sorted(one for w in waiting for one in w.result()) == [b"1", b"2", b"3"]


def test_a_waiter_gives_up_in_time(broker: Broker) -> None:
    handed = broker.claim(claim(), 0.05)
    assert (handed.claimed.empty, payloads(handed)) == (EmptyReason.EMPTY, [])


def test_a_waiter_wakes_when_a_delayed_message_is_due(broker: Broker, clock: ManualClock) -> None:
    broker.send(push(b"later", delay=60_000_000))
    waiting = Errand(lambda: payloads(broker.claim(claim(), PATIENCE)))
    parked(broker)
    clock.advance(61)
    assert waiting.result() == [b"later"]


def test_a_waiter_wakes_when_a_lease_is_released(broker: Broker) -> None:
    broker.send(push(b"1"))
    held = broker.claim(claim())
    waiting = Errand(lambda: payloads(broker.claim(claim(), PATIENCE)))
    parked(broker)
    entry = Settlement(selector=ByLease(held.claimed.lease_id), outcome=Outcome.RELEASE)
    broker.send(Settle(entries=[entry]))
    assert waiting.result() == [b"1"]


def test_a_waiter_hears_of_another_process(url: str) -> None:
    broker = Broker(SQLiteStore(url))
    try:
        broker.send(ConfigureQueue(queue="q"))
        waiting = Errand(lambda: payloads(broker.claim(claim(), PATIENCE)))
        parked(broker)
        script = f"import ackwise\nwith ackwise.connect({url!r}) as c: c.push('q', b'from afar')"
        subprocess.run([sys.executable, "-c", script], check=True)
        assert waiting.result() == [b"from afar"]
    finally:
        broker.close()


def test_singles_from_many_threads_share_commits(broker: Broker, store: CountingStore) -> None:
    """While one turn is under way the others gather for the next."""
    first = threading.Event()
    gathered = threading.Event()

    def hold(commands: Sequence[Command]) -> None:
        if not first.is_set():
            first.set()
            assert gathered.wait(PATIENCE)

    store.trouble = hold
    turns = store.turns
    pushing = [Errand(partial(broker.send, push(b"%d" % n))) for n in range(32)]
    end = time.monotonic() + PATIENCE
    while len(broker._lanes[0]._pending) < 31:
        assert time.monotonic() < end
        time.sleep(0.001)
    gathered.set()
    for one in pushing:
        one.result()
    assert store.turns - turns <= 3
    assert broker.ask(QueueStats(queue="q")).messages == 32


def test_a_bad_command_fails_nobody_else(broker: Broker) -> None:
    bad = Push(queue="q", messages=[NewMessage("text")])  # type: ignore[arg-type]
    good, refused, also_good = broker.send_all([push(b"1"), bad, push(b"2")])
    assert isinstance(refused, BadInput)
    assert (good[0].status, also_good[0].status) == ("queued", "queued")
    assert broker.ask(QueueStats(queue="q")).messages == 2


def test_a_turn_that_breaks_fails_only_who_broke_it(broker: Broker) -> None:
    """An error nobody foresaw: the commands are tried again one by one."""
    bomb = Claim(queue="q", partitions=(object(),), most=1)  # type: ignore[arg-type]
    results = broker.send_all([push(b"1"), bomb, push(b"2")])
    assert [r[0].status for r in (results[0], results[2])] == ["queued", "queued"]
    assert isinstance(results[1], Exception)
    assert broker.ask(QueueStats(queue="q")).messages == 2


def test_everybody_in_a_turn_hears_of_a_broken_store(broker: Broker, store: CountingStore) -> None:
    def broken(commands: Sequence[Command]) -> None:
        raise StoreUnavailable("the disk is gone")

    store.trouble = broken
    with pytest.raises(StoreUnavailable):
        broker.send(push(b"1"))
    store.trouble = None
    assert broker.send(push(b"1"))[0].status == "queued"


def test_after_a_drain_nothing_is_handed_out(broker: Broker) -> None:
    broker.send(push(b"1", b"2"))
    broker.claim(claim())
    assert broker.drain() == 1
    assert broker.claim(claim()).claimed.empty is EmptyReason.DRAINING
    assert broker.send(push(b"3"))[0].status == "queued"


def test_parked_claims_come_back_when_draining(broker: Broker) -> None:
    waiting = Errand(lambda: broker.claim(claim(), PATIENCE).claimed.empty)
    parked(broker)
    broker.drain()
    assert waiting.result() is EmptyReason.DRAINING


def test_released_messages_cost_nothing_after_a_drain(url: str, clock: ManualClock) -> None:
    first = Broker(SQLiteStore(url, clock=clock), background=False)
    first.send(push(b"1"))
    first.claim(claim())
    assert first.drain() == 1
    first.close()
    second = Broker(SQLiteStore(url, clock=clock), background=False)
    (grant,) = second.claim(claim()).claimed.grants
    assert (grant.failures, grant.attempt) == (0, 2)
    second.close()


def test_a_closed_broker_says_so(broker: Broker) -> None:
    broker.close()
    broker.close()
    with pytest.raises((Draining, StoreError)):
        broker.send(push(b"1"))


def test_too_much_waiting_is_refused(broker: Broker, store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_module, "WAITING_BYTES", 1000)
    inside, go_on = threading.Event(), threading.Event()

    def hold(commands: Sequence[Command]) -> None:
        inside.set()
        assert go_on.wait(PATIENCE)

    store.trouble = hold
    under_way = Errand(lambda: broker.send(push(b"x" * 10)))
    assert inside.wait(PATIENCE)
    waiting = Errand(lambda: broker.send(push(b"x" * 900)))
    end = time.monotonic() + PATIENCE
    while not len(broker._lanes[0]._pending):
        assert time.monotonic() < end
        time.sleep(0.001)
    with pytest.raises(Overloaded) as refusal:
        broker.send(push(b"x" * 200))
    assert refusal.value.details["retry_after"] == 1
    go_on.set()
    under_way.result()
    waiting.result()
    assert broker.send(push(b"x" * 200))[0].status == "queued"


def test_no_waiter_is_lost_in_a_storm(broker: Broker) -> None:
    """Consumers that long-poll for one message at a time, beside producers that push one at a time."""
    total, lock = 300, threading.Lock()
    seen: list[bytes] = []

    def consume() -> None:
        while True:
            with lock:
                if len(seen) >= total:
                    return
            handed = broker.claim(claim(), 0.2)
            if handed.claimed.grants:
                broker.send(ack(handed))
                with lock:
                    seen.extend(payloads(handed))

    def produce(start: int) -> None:
        for number in range(start, total, 3):
            broker.send(push(b"%d" % number))

    workers = [Errand(consume) for _ in range(6)] + [Errand(partial(produce, n)) for n in range(3)]
    for worker in workers:
        worker.result()
    assert sorted(map(int, seen)) == list(range(total))


def test_expiry_happens_by_itself(url: str) -> None:
    """The reaper acts within two seconds; a real clock, once."""
    broker = Broker(SQLiteStore(url))
    try:
        broker.send(push(b"1"))
        broker.claim(Claim(queue="q", lease=100_000))
        waiting = broker.claim(claim(), 5.0)
        assert waiting.claimed.grants[0].failures == 1
    finally:
        broker.close()


def test_a_push_between_the_try_and_the_sleep_is_not_missed(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    park = broker.waiters.park
    slept: list[bool] = []

    def late(slot: Waiting, seen: Seen) -> bool:
        broker.send(push(b"1"))
        slept.append(park(slot, seen))
        return slept[-1]

    monkeypatch.setattr(broker.waiters, "park", late)
    assert payloads(broker.claim(claim(), 1.0)) == [b"1"]
    assert slept == [False]
