"""The ledger: per minute, queue, group and outcome how many and how long they took."""

from __future__ import annotations

from ackwise.core import queries as q
from tests.contract.support import Desk

MINUTE = 60_000_000


def ledger(desk: Desk, **query: object) -> dict[tuple[int, str, str], int]:
    """(minute from the beginning, group, outcome) to count."""
    start = 1_700_000_000_000_000 // MINUTE
    rows = desk.store.read_ledger(q.ReadLedger(**query))  # type: ignore[arg-type]
    return {(row.minute // MINUTE - start, row.group, row.outcome): row.count for row in rows}


def test_everything_that_happens_is_counted_in_its_minute(desk: Desk) -> None:
    desk.configure(retry_limit=2)
    desk.number(5)
    desk.push("again", txid="t0")
    hand = desk.claim(group="g")
    desk.ack(*hand.deliveries[:2])
    desk.retry(hand.deliveries[2])
    desk.reject(hand.deliveries[3])
    desk.release(hand.deliveries[4])
    assert ledger(desk) == {
        (0, "", "pushed"): 5,
        (0, "", "duplicate"): 1,
        (0, "g", "acked"): 2,
        (0, "g", "retried"): 1,
        (0, "g", "dead"): 1,
        (0, "g", "released"): 1,
    }


def test_a_later_minute_is_another_row(desk: Desk) -> None:
    desk.push("a")
    desk.advance(600)
    desk.push("b")
    desk.ack(desk.take())
    assert ledger(desk) == {
        (0, "", "pushed"): 1,
        (10, "", "pushed"): 1,
        (10, "__QUEUE_MODE__", "acked"): 1,
    }


def test_rows_add_up_over_many_commits(desk: Desk) -> None:
    for _ in range(5):
        desk.push("a", "b")
        desk.ack(*desk.claim().deliveries)
        desk.advance(1.5)
    assert ledger(desk) == {(0, "", "pushed"): 10, (0, "__QUEUE_MODE__", "acked"): 10}
    assert ledger(desk) == {(0, "", "pushed"): 10, (0, "__QUEUE_MODE__", "acked"): 10}


def test_latency_is_from_claim_to_settlement(desk: Desk) -> None:
    desk.number(3)
    hand = desk.claim()
    desk.advance(2)
    desk.ack(*hand.deliveries[:2])
    desk.advance(8)
    desk.ack(hand.deliveries[2])
    (row,) = [r for r in desk.store.read_ledger(q.ReadLedger(queue="q")) if r.outcome == "acked"]
    (fast, slow) = sorted(row.latency)
    assert (row.latency[fast], row.latency[slow]) == (2, 1)
    assert 2_000_000 <= fast <= 2_500_000
    assert 10_000_000 <= slow <= 12_500_000


def test_filters(desk: Desk) -> None:
    desk.push("a")
    desk.push("b", queue="r")
    desk.ack(desk.take(group="g"))
    desk.advance(300)
    desk.push("c")
    assert set(ledger(desk, queue="r")) == {(0, "", "pushed")}
    assert set(ledger(desk, group="g")) == {(0, "g", "acked")}
    assert set(ledger(desk, queue="q", after_at=desk.clock.now() - MINUTE)) == {(5, "", "pushed")}
    assert (5, "", "pushed") not in ledger(desk, before_at=desk.clock.now() - MINUTE)


def test_sweeps_are_counted_too(desk: Desk) -> None:
    desk.configure(max_wait_seconds=30)
    desk.push("a", "b")
    desk.take(group="g", seconds=5)
    desk.advance(5)
    desk.sweep("expire")
    desk.advance(25)
    desk.sweep("max_wait")
    desk.redrive(desk.dead()[0])
    found = ledger(desk, group="g")
    assert found == {(0, "g", "lease_expired"): 1, (0, "g", "dead"): 2, (0, "g", "redriven"): 1}


def test_old_minutes_are_forgotten(desk: Desk) -> None:
    desk.push("a")
    desk.advance(2)
    desk.push("b")
    desk.advance(32 * 24 * 3600)
    desk.sweep("forget")
    assert ledger(desk) == {}
