"""The ledger: per minute, queue, group and outcome how many and how long they took."""

from __future__ import annotations

import pytest

from ackwise.core import queries as q
from ackwise.core.errors import BadInput
from ackwise.core.rows import TimeSeries
from tests.engine.store_harness import StoreHarness

MINUTE = 60_000_000


def ledger(harness: StoreHarness, **query: object) -> dict[tuple[int, str, str], int]:
    """(minute from the beginning, group, outcome) to count."""
    start = 1_700_000_000_000_000 // MINUTE
    rows = harness.store.ask(q.ReadLedger(**query))  # type: ignore[arg-type]
    return {(row.minute // MINUTE - start, row.group, row.outcome): row.count for row in rows}


def test_ledger_counts_each_outcome_in_its_minute(harness: StoreHarness) -> None:
    harness.configure(retry_limit=2)
    harness.number(5)
    harness.push("again", txid="t0")
    hand = harness.claim(group="g")
    harness.ack(*hand.deliveries[:2])
    harness.retry(hand.deliveries[2])
    harness.reject(hand.deliveries[3])
    harness.release(hand.deliveries[4])
    assert ledger(harness) == {
        (0, "", "pushed"): 5,
        (0, "", "duplicate"): 1,
        (0, "g", "acked"): 2,
        (0, "g", "retried"): 1,
        (0, "g", "dead"): 1,
        (0, "g", "released"): 1,
    }


def test_later_minute_is_another_row(harness: StoreHarness) -> None:
    harness.push("a")
    harness.advance(600)
    harness.push("b")
    harness.ack(harness.take())
    assert ledger(harness) == {
        (0, "", "pushed"): 1,
        (10, "", "pushed"): 1,
        (10, "__QUEUE_MODE__", "acked"): 1,
    }


def test_rows_add_up_over_many_commits(harness: StoreHarness) -> None:
    for _ in range(5):
        harness.push("a", "b")
        harness.ack(*harness.claim().deliveries)
        harness.advance(1.5)
    assert ledger(harness) == {(0, "", "pushed"): 10, (0, "__QUEUE_MODE__", "acked"): 10}
    assert ledger(harness) == {(0, "", "pushed"): 10, (0, "__QUEUE_MODE__", "acked"): 10}


def test_latency_is_from_claim_to_settlement(harness: StoreHarness) -> None:
    harness.number(3)
    hand = harness.claim()
    harness.advance(2)
    harness.ack(*hand.deliveries[:2])
    harness.advance(8)
    harness.ack(hand.deliveries[2])
    (row,) = [r for r in harness.store.ask(q.ReadLedger(queue="q")) if r.outcome == "acked"]
    (fast, slow) = sorted(row.latency)
    assert (row.latency[fast], row.latency[slow]) == (2, 1)
    assert 2_000_000 <= fast <= 2_500_000
    assert 10_000_000 <= slow <= 12_500_000


def test_ledger_is_filtered_by_queue_group_and_time(harness: StoreHarness) -> None:
    harness.push("a")
    harness.push("b", queue="r")
    harness.ack(harness.take(group="g"))
    harness.advance(300)
    harness.push("c")
    assert set(ledger(harness, queue="r")) == {(0, "", "pushed")}
    assert set(ledger(harness, group="g")) == {(0, "g", "acked")}
    assert set(ledger(harness, queue="q", after_at=harness.clock.now() - MINUTE)) == {(5, "", "pushed")}
    assert (5, "", "pushed") not in ledger(harness, before_at=harness.clock.now() - MINUTE)


def test_sweeps_are_counted_too(harness: StoreHarness) -> None:
    harness.configure(max_wait_seconds=30)
    harness.push("a", "b")
    harness.take(group="g", seconds=5)
    harness.advance(5)
    harness.sweep("expire")
    harness.advance(25)
    harness.sweep("max_wait")
    harness.redrive(harness.dead()[0])
    found = ledger(harness, group="g")
    assert found == {(0, "g", "lease_expired"): 1, (0, "g", "dead"): 2, (0, "g", "redriven"): 1}


def test_old_minutes_are_forgotten(harness: StoreHarness) -> None:
    harness.push("a")
    harness.advance(2)
    harness.push("b")
    harness.advance(32 * 24 * 3600)
    harness.sweep("forget")
    assert ledger(harness) == {}


def series(harness: StoreHarness, minutes: tuple[int, int], buckets: int, **filters: object) -> TimeSeries:
    start = 1_700_000_000_000_000 // MINUTE
    first, last = ((start + minute) * MINUTE for minute in minutes)
    return harness.store.ask(q.LedgerSeries(after_at=first, before_at=last, buckets=buckets, **filters))  # type: ignore[arg-type]


def test_series_adds_outcomes_up_in_equal_buckets(harness: StoreHarness) -> None:
    for _ in range(4):
        harness.push("a", "b")
        harness.push("c", queue="r")
        harness.ack(harness.take(group="g"))
        harness.advance(150)
    start = 1_700_000_000_000_000 // MINUTE * MINUTE
    whole = series(harness, (0, 10), 10)
    assert (whole.first_at, whole.step) == (start, MINUTE)
    assert whole.counts == {"pushed": [3, 0, 3, 0, 0, 3, 0, 3, 0, 0], "acked": [1, 0, 1, 0, 0, 1, 0, 1, 0, 0]}
    assert series(harness, (0, 10), 2).counts == {"pushed": [6, 6], "acked": [2, 2]}
    assert series(harness, (0, 10), 2, queue="q").counts == {"pushed": [4, 4], "acked": [2, 2]}
    assert series(harness, (0, 10), 2, queue="q", group="g").counts == {"acked": [2, 2]}
    assert series(harness, (0, 10), 2, group="g").counts == {"acked": [2, 2]}
    assert series(harness, (5, 10), 1, queue="r").counts == {"pushed": [2]}
    assert series(harness, (0, 10), 2, queue="nowhere").counts == {}


def test_series_of_an_uneven_range_has_whole_minutes(harness: StoreHarness) -> None:
    harness.push("a")
    harness.advance(6 * 60)
    harness.push("b")
    start = 1_700_000_000_000_000 // MINUTE * MINUTE
    for buckets, step, counts in ((3, 3, [1, 0, 1]), (4, 2, [1, 0, 0, 1]), (400, 1, [1, 0, 0, 0, 0, 0, 1])):
        query = q.LedgerSeries(after_at=start + 5, before_at=start + 6 * MINUTE + 1, buckets=buckets)
        found = harness.store.ask(query)
        assert (found.first_at, found.step) == (start, step * MINUTE)
        assert found.counts == {"pushed": counts}


@pytest.mark.parametrize(
    "query",
    [
        q.LedgerSeries(after_at=5, before_at=5),
        q.LedgerSeries(after_at=0, before_at=5, buckets=401),
        q.LedgerSeries(after_at=0, before_at=5, buckets=0),
        q.LedgerSeries(after_at=-1, before_at=5),
        q.LedgerSeries(after_at=0, before_at=5, queue=""),
    ],
    ids=str,
)
def test_bad_series_is_refused(harness: StoreHarness, query: q.LedgerSeries) -> None:
    with pytest.raises(BadInput):
        harness.store.ask(query)
