"""Delays: a message's own waits outside its lane, a queue's is head-of-line."""

from __future__ import annotations

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.validation import MICROS
from tests.engine.store_harness import StoreHarness


def test_delayed_message_gets_its_place_when_due(harness: StoreHarness) -> None:
    harness.push("later", delay=60)
    harness.push("now")
    assert harness.store.ask(q.QueueStats(queue="q")).scheduled == 1
    hand = harness.claim()
    assert hand.bodies == ["now"]
    harness.ack(*hand.deliveries)
    harness.advance(59.9)
    assert harness.claim().why == "empty"
    harness.advance(0.1)
    later = harness.take()
    assert (later.body, later.seq) == ("later", 1)
    assert harness.store.ask(q.QueueStats(queue="q")).scheduled == 0


def test_delayed_message_keeps_its_id_when_due(harness: StoreHarness) -> None:
    (receipt,) = harness.push("later", delay=1, txid="mine", priority=3, partition="p")
    harness.advance(1)
    got = harness.take()
    assert (got.message.id, got.transaction_id) == (receipt.message_id, "mine")
    assert (got.priority, got.partition_id) == (3, receipt.partition_id)


def test_due_messages_are_promoted_in_the_order_of_their_times(harness: StoreHarness) -> None:
    for body, delay in (("c", 3), ("a", 1), ("b", 2), ("never", 1000)):
        harness.push(body, delay=delay)
    harness.advance(10)
    assert harness.sweep("promote") == {"promote": 3}
    assert harness.claim().bodies == ["a", "b", "c"]


def test_promotion_is_bounded_per_sweep(harness: StoreHarness) -> None:
    harness.push(*(str(i) for i in range(5)), delay=1)
    harness.advance(1)
    swept = harness.do(c.Sweep(duties=("promote",), limit=3))
    assert (swept.done, swept.more) == ({"promote": 3}, True)
    assert harness.do(c.Sweep(duties=("promote",), limit=3)).more is False


def test_queue_delay_holds_back_each_message_for_its_time(harness: StoreHarness) -> None:
    harness.configure(delay_seconds=30)
    harness.push("a")
    harness.advance(10)
    harness.push("b")
    hand = harness.claim()
    assert (hand.why, hand.claimed.until) == ("delayed", harness.clock.now() + 20 * MICROS)
    harness.advance(20)
    first = harness.claim()
    assert first.bodies == ["a"]
    harness.ack(*first.deliveries)
    assert (harness.claim().why, harness.claim(partitions=("Default",)).why) == ("delayed", "delayed")
    harness.advance(10)
    assert harness.claim().bodies == ["b"]


def test_retry_of_a_queue_with_delay_does_not_wait_again(harness: StoreHarness) -> None:
    harness.configure(delay_seconds=30)
    harness.push("a")
    harness.advance(30)
    harness.retry(harness.take())
    assert harness.take().attempt == 2


def test_deleted_queue_drops_what_was_scheduled(harness: StoreHarness) -> None:
    harness.push("later", delay=60)
    harness.do(c.DeleteQueue(queue="q"))
    harness.push("new")
    harness.advance(61)
    assert harness.claim().bodies == ["new"]
    harness.sweep()
    assert harness.claim().why == "empty"
