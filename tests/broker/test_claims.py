"""Turns, long polls and drain, on both brokers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from ackwise.broker import turn_queue
from ackwise.broker.deliveries import deliver
from ackwise.clock import ManualClock
from ackwise.core import command_checks
from ackwise.core.answers import Claimed, Handed
from ackwise.core.commands import ByLease, Claim, Command, ConfigureQueue, Push, Settle, Settlement
from ackwise.core.errors import BadInput, Draining, Overloaded, StoreError, StoreUnavailable
from ackwise.core.lane_selection import EmptyReason
from ackwise.core.messages import NewMessage
from ackwise.core.queries import ListLeases, QueueStats
from ackwise.core.settlement import Outcome, Verdict
from ackwise.store.port import Store
from ackwise.store.sqlite import SQLiteStore
from tests.broker.both_brokers import AnyBroker, StartBroker, module_of, waiting
from tests.broker.support import CountingStore, ack, claim, payloads, push
from tests.broker.watched import Errand, until
from tests.patience import PATIENCE


def parked(broker: AnyBroker, count: int = 1) -> None:
    """Wait until that many claims are parked."""
    until(lambda: len(broker.long_polls) >= count)


def test_waiter_gets_what_is_pushed_later(broker: AnyBroker, store: CountingStore) -> None:
    waiting = Errand(lambda: payloads(broker.claim(claim(), PATIENCE)))
    parked(broker)
    turns = store.turns
    broker.send(push(b"1"))
    assert waiting.result() == [b"1"]
    assert store.turns == turns + 1, "push and hand-over share a turn"


def test_waiters_are_served_once_per_message(broker: AnyBroker) -> None:
    waiting = [Errand(lambda: payloads(broker.claim(claim(), PATIENCE))) for _ in range(3)]
    parked(broker, 3)
    broker.send(push(b"1", b"2"))
    parked(broker, 1)
    broker.send(push(b"3"))
    assert sorted(one for w in waiting for one in w.result()) == [b"1", b"2", b"3"]


def test_waiter_gives_up_in_time(broker: AnyBroker) -> None:
    handed = broker.claim(claim(), 0.05)
    assert (handed.claimed.empty, payloads(handed)) == (EmptyReason.EMPTY, [])


def test_waiter_wakes_when_a_delayed_message_is_due(broker: AnyBroker, clock: ManualClock) -> None:
    broker.send(push(b"later", delay=60_000_000))
    waiting = Errand(lambda: payloads(broker.claim(claim(), PATIENCE)))
    parked(broker)
    clock.advance(61)
    assert waiting.result() == [b"later"]


def test_waiter_wakes_when_a_lease_is_released(broker: AnyBroker) -> None:
    broker.send(push(b"1"))
    held = broker.claim(claim())
    waiting = Errand(lambda: payloads(broker.claim(claim(), PATIENCE)))
    parked(broker)
    entry = Settlement(selector=ByLease(held.claimed.lease_id), outcome=Outcome.RELEASE)
    broker.send(Settle(entries=[entry]))
    assert waiting.result() == [b"1"]


def test_waiter_hears_of_another_process(url: str, start_broker: StartBroker) -> None:
    broker = start_broker(SQLiteStore(url), background=True)
    broker.send(ConfigureQueue(queue="q"))
    waiter = Errand(lambda: payloads(broker.claim(claim(), PATIENCE)))
    parked(broker)
    script = f"import ackwise\nwith ackwise.connect({url!r}) as c: c.push('q', b'from afar')"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert waiter.result() == [b"from afar"]


def test_singles_from_many_threads_share_commits(broker: AnyBroker, store: CountingStore) -> None:
    """While one turn is under way the others gather for the next."""
    first = threading.Event()
    gathered = threading.Event()

    def hold(commands: Sequence[Command]) -> None:
        if not first.is_set():
            first.set()
            assert gathered.wait(PATIENCE)

    store.trouble = hold
    turns = store.turns
    pushing = [Errand(partial(broker.send, push(b"0")))]
    assert first.wait(PATIENCE)
    pushing += [Errand(partial(broker.send, push(b"%d" % n))) for n in range(1, 32)]
    until(lambda: waiting(broker) == 31)
    gathered.set()
    for one in pushing:
        one.result()
    assert store.turns - turns <= 3
    assert broker.ask(QueueStats(queue="q")).messages == 32


def test_bad_command_fails_no_other_command(broker: AnyBroker) -> None:
    bad = Push(queue="q", messages=[NewMessage("text")])  # type: ignore[arg-type]
    answers: list[Any] = [*broker.send_all([push(b"1"), bad, push(b"2")])]
    good, refused, also_good = answers
    assert isinstance(refused, BadInput)
    assert (good[0].status, also_good[0].status) == ("queued", "queued")
    assert broker.ask(QueueStats(queue="q")).messages == 2


def test_turn_that_breaks_fails_only_who_broke_it(broker: AnyBroker) -> None:
    """After an unexpected error the broker retries the commands one by one."""
    bomb = Claim(queue="q", partitions=(object(),), most=1)  # type: ignore[arg-type]
    results: list[Any] = [*broker.send_all([push(b"1"), bomb, push(b"2")])]
    assert [r[0].status for r in (results[0], results[2])] == ["queued", "queued"]
    assert isinstance(results[1], Exception)
    assert broker.ask(QueueStats(queue="q")).messages == 2


def test_broken_store_fails_every_command_of_a_turn(broker: AnyBroker, store: CountingStore) -> None:
    def broken(commands: Sequence[Command]) -> None:
        raise StoreUnavailable("the disk is gone")

    store.trouble = broken
    with pytest.raises(StoreUnavailable):
        broker.send(push(b"1"))
    store.trouble = None
    assert broker.send(push(b"1"))[0].status == "queued"


def test_claim_after_a_drain_is_empty(broker: AnyBroker) -> None:
    broker.send(push(b"1", b"2"))
    broker.claim(claim())
    assert broker.drain() == 1
    assert broker.claim(claim()).claimed.empty is EmptyReason.DRAINING
    assert broker.send(push(b"3"))[0].status == "queued"


def test_parked_claims_come_back_when_draining(broker: AnyBroker) -> None:
    waiting = Errand(lambda: broker.claim(claim(), PATIENCE).claimed.empty)
    parked(broker)
    broker.drain()
    assert waiting.result() is EmptyReason.DRAINING


def test_released_messages_cost_nothing_after_a_drain(url: str, clock: ManualClock, start_broker: StartBroker) -> None:
    first = start_broker(SQLiteStore(url, clock=clock))
    first.send(push(b"1"))
    first.claim(claim())
    assert first.drain() == 1
    first.close()
    second = start_broker(SQLiteStore(url, clock=clock))
    (grant,) = second.claim(claim()).claimed.grants
    assert (grant.failures, grant.attempt) == (0, 2)


def test_closed_broker_says_so(broker: AnyBroker) -> None:
    broker.close()
    broker.close()
    with pytest.raises((Draining, StoreError)):
        broker.send(push(b"1"))


def test_push_above_the_waiting_bytes_is_refused(
    broker: AnyBroker, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_queue, "WAITING_BYTES", 1000)
    inside, go_on = threading.Event(), threading.Event()

    def hold(commands: Sequence[Command]) -> None:
        inside.set()
        assert go_on.wait(PATIENCE)

    store.trouble = hold
    under_way = Errand(lambda: broker.send(push(b"x" * 10)))
    assert inside.wait(PATIENCE)
    queued = Errand(lambda: broker.send(push(b"x" * 900)))
    until(lambda: waiting(broker) == 1)
    with pytest.raises(Overloaded) as refusal:
        broker.send(push(b"x" * 200))
    assert refusal.value.details["retry_after"] == 1
    go_on.set()
    under_way.result()
    queued.result()
    assert broker.send(push(b"x" * 200))[0].status == "queued"


def test_waiters_in_a_storm_get_every_message(broker: AnyBroker) -> None:
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


def test_expiry_happens_by_itself(url: str, start_broker: StartBroker) -> None:
    """The reaper acts within two seconds; a real clock, once."""
    broker = start_broker(SQLiteStore(url), background=True)
    broker.send(push(b"1"))
    broker.claim(Claim(queue="q", lease=100_000))
    handed = broker.claim(claim(), 5.0)
    assert handed.claimed.grants[0].failures == 1


def test_claims_ahead_of_a_failed_answer_go_back(broker: AnyBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three claims cannot be read: no caller gets the first and the third."""
    numbers = iter(range(3))

    def fail(store: Store, claimed: Claimed) -> Handed:
        if next(numbers) == 1:
            raise MemoryError
        return deliver(store, claimed)

    broker.send(push(b"1", b"2", b"3"))
    with monkeypatch.context() as patch:
        patch.setattr(f"{module_of(broker)}.deliver", fail)
        with pytest.raises(MemoryError):
            broker.claim_ahead(None, Claim(queue="q", most=1, exclusivity="none"), 3)
    until(lambda: not broker.ask(ListLeases(queue="q")))
    assert payloads(broker.claim(claim(3))) == [b"1", b"2", b"3"]


def test_settle_and_claim_share_a_turn(broker: AnyBroker, store: CountingStore) -> None:
    broker.send(push(b"1", b"2", b"3"))
    first = broker.claim(claim())
    turns = store.turns
    settled, second = broker.settle_and_claim(ack(first), claim(), 0.0)
    assert (settled[0].count, payloads(second)) == (1, [b"2"])
    settled, ahead = broker.claim_ahead(ack(second), claim(), 4)
    assert [payloads(one) for one in ahead] == [[b"3"]]
    assert store.turns == turns + 2


def test_claims_ahead_with_a_key_are_the_same_claims_again(broker: AnyBroker) -> None:
    """Also with the settlement that went with them, when the answer to both got lost."""
    broker.send(push(b"1", b"2", b"3", b"4"))
    first = broker.claim(claim())
    settle, keyed = ack(first), msgspec.structs.replace(claim(), key="mine")
    settled, ahead = broker.claim_ahead(settle, keyed, 2)
    again, same = broker.claim_ahead(settle, keyed, 2)
    assert [one.verdict for one in (*settled, *again)] == [Verdict.ACKED, Verdict.ALREADY]
    assert [payloads(one) for one in ahead] == [payloads(one) for one in same] == [[b"2"], [b"3"]]
    (stale, *_), (held, *_) = broker.send(ack(ahead[0])), broker.send(ack(same[0]))
    assert (stale.verdict, held.verdict) == (Verdict.STALE, Verdict.ACKED)
    assert payloads(broker.claim(claim())) == [b"4"]


def test_claim_that_waits_takes_nothing_from_who_asked_again(broker: AnyBroker) -> None:
    """Its caller may have gone long ago, and have the messages from elsewhere."""
    keyed = msgspec.structs.replace(claim(), key="mine")
    polls = [Errand(lambda: broker.claim(keyed, PATIENCE)) for _ in range(2)]
    parked(broker, 2)
    broker.send(push(b"1"))
    until(lambda: not all(poll.is_alive() for poll in polls))
    given, other = sorted(polls, key=threading.Thread.is_alive)
    broker.send(push(b"2"))
    assert other.result().claimed.empty is EmptyReason.ENDED
    (settled,) = broker.send(ack(given.result()))
    assert (payloads(given.result()), settled.verdict) == ([b"1"], Verdict.ACKED)
    assert payloads(broker.claim(claim())) == [b"2"]


def test_repeated_claim_gets_grant_of_parked_claim(broker: AnyBroker) -> None:
    keyed = msgspec.structs.replace(claim(), key="mine")
    waiter = Errand(lambda: broker.claim(keyed, PATIENCE))
    parked(broker)
    broker.send(push(b"1"))
    given, again = waiter.result(), broker.claim(keyed, PATIENCE)
    assert payloads(given) == payloads(again) == [b"1"]
    (stale,), (held,) = broker.send(ack(given)), broker.send(ack(again))
    assert (stale.verdict, held.verdict) == (Verdict.STALE, Verdict.ACKED)


def test_waiting_claim_is_validated_once(broker: AnyBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    validated: list[Claim] = []
    check = command_checks._CHECKS[Claim]

    def counted(command: Claim) -> object:
        validated.append(command)
        return check(command)

    checks: dict[Any, Any] = {**command_checks._CHECKS, Claim: counted}
    monkeypatch.setattr(command_checks, "_CHECKS", checks)
    waiter = Errand(lambda: broker.claim(claim(), PATIENCE))
    parked(broker)
    broker.retry_parked()
    until(lambda: len(broker.long_polls) == 1)
    broker.send(push(b"a"))
    assert payloads(waiter.result()) == [b"a"]
    assert validated == [claim()]


def test_invalid_claim_is_refused_even_while_draining(broker: AnyBroker) -> None:
    broker.stop_claims()
    with pytest.raises(BadInput):
        broker.claim(claim(most=0))
