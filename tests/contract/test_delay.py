"""Delays: a message's own waits outside its lane, a queue's is head-of-line."""

from __future__ import annotations

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.limits import MICROS
from tests.contract.support import Desk


def test_a_delayed_message_gets_its_place_when_due(desk: Desk) -> None:
    desk.push("later", delay=60)
    desk.push("now")
    assert desk.store.stats(q.QueueStats(queue="q")).scheduled == 1
    hand = desk.claim()
    assert hand.bodies == ["now"]
    desk.ack(*hand.deliveries)
    desk.advance(59.9)
    assert desk.claim().why == "empty"
    desk.advance(0.1)
    later = desk.take()
    assert (later.body, later.seq) == ("later", 1)
    assert desk.store.stats(q.QueueStats(queue="q")).scheduled == 0


def test_it_keeps_the_id_it_was_given(desk: Desk) -> None:
    (receipt,) = desk.push("later", delay=1, txid="mine", priority=3, partition="p")
    desk.advance(1)
    got = desk.take()
    assert (got.message.id, got.transaction_id) == (receipt.message_id, "mine")
    assert (got.priority, got.partition_id) == (3, receipt.partition_id)


def test_due_messages_are_promoted_in_the_order_of_their_times(desk: Desk) -> None:
    for body, delay in (("c", 3), ("a", 1), ("b", 2), ("never", 1000)):
        desk.push(body, delay=delay)
    desk.advance(10)
    assert desk.sweep("promote") == {"promote": 3}
    assert desk.claim().bodies == ["a", "b", "c"]


def test_promotion_is_bounded_per_sweep(desk: Desk) -> None:
    desk.push(*(str(i) for i in range(5)), delay=1)
    desk.advance(1)
    swept = desk.do(c.Sweep(duties=("promote",), limit=3))
    assert (swept.done, swept.more) == ({"promote": 3}, True)
    assert desk.do(c.Sweep(duties=("promote",), limit=3)).more is False


def test_a_sweep_says_when_something_is_due_next(desk: Desk) -> None:
    desk.push("later", delay=60)
    due = desk.clock.now() + 60 * MICROS
    assert desk.do(c.Sweep()).next_at == due
    desk.push("now")
    lease = desk.claim(seconds=10)
    assert desk.do(c.Sweep()).next_at == lease.claimed.deadline < due


def test_a_queue_delay_holds_back_each_message_for_its_time(desk: Desk) -> None:
    desk.configure(delay_seconds=30)
    desk.push("a")
    desk.advance(10)
    desk.push("b")
    hand = desk.claim()
    assert (hand.why, hand.claimed.until) == ("delayed", desk.clock.now() + 20 * MICROS)
    desk.advance(20)
    first = desk.claim()
    assert first.bodies == ["a"]
    desk.ack(*first.deliveries)
    assert (desk.claim().why, desk.claim(partitions=("Default",)).why) == ("delayed", "delayed")
    desk.advance(10)
    assert desk.claim().bodies == ["b"]


def test_a_retry_of_a_queue_with_delay_does_not_wait_again(desk: Desk) -> None:
    desk.configure(delay_seconds=30)
    desk.push("a")
    desk.advance(30)
    desk.retry(desk.take())
    assert desk.take().attempt == 2


def test_a_deleted_queue_drops_what_was_scheduled(desk: Desk) -> None:
    desk.push("later", delay=60)
    desk.do(c.DeleteQueue(queue="q"))
    desk.push("new")
    desk.advance(61)
    assert desk.claim().bodies == ["new"]
    desk.sweep()
    assert desk.claim().why == "empty"
