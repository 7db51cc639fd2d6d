"""Leases are kept alive while a batch runs, and no longer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackwise.client.settlements import HeldLeases
from ackwise.client.sync.lease_keeper import extend_all
from ackwise.clock import ManualClock
from ackwise.core import commands as c
from ackwise.core.validation import MICROS
from ackwise.spark.source.lease_claims import BatchLease
from ackwise.spark.source.lease_reader import LeaseReader
from tests.spark.queue_harness import QueueHarness, until
from tests.spark.source.asking import Query

Make = Callable[..., Query]
SHORT = 0.06


def deadline(harness: QueueHarness) -> int:
    (held,) = harness.leases()
    return held.deadline


def test_batch_may_take_longer_than_its_lease(
    timed_harness: QueueHarness, timed_url: str, query: Make, clock: ManualClock
) -> None:
    timed_harness.number(3)
    one = query(timed_url, leaseSeconds=SHORT)
    rows = one.batch()
    for _ in range(10):
        clock.advance(SHORT * 0.9)
        until(lambda: deadline(timed_harness) == clock.now() + round(SHORT * MICROS))
    assert timed_harness.settle(rows) == ["acked"] * 3


def test_claim_replanned_after_restart_is_renewed(
    timed_harness: QueueHarness, timed_url: str, query: Make, clock: ManualClock
) -> None:
    timed_harness.number(3)
    first = query(timed_url, leaseSeconds=SHORT)
    first.batch()
    again = query(timed_url, first.log, leaseSeconds=SHORT)
    rows = again.rows()
    for _ in range(5):
        clock.advance(SHORT * 0.9)
        until(lambda: deadline(timed_harness) == clock.now() + round(SHORT * MICROS))
    assert timed_harness.settle(rows) == ["acked"] * 3


def test_claim_of_a_committed_batch_is_not_renewed(
    timed_harness: QueueHarness, timed_url: str, query: Make, clock: ManualClock
) -> None:
    """A claim that a committed batch left behind must not be held for ever."""
    timed_harness.number(3)
    one = query(timed_url, leaseSeconds=SHORT)
    one.batch()
    assert not one.plan()
    assert timed_harness.leases() == []
    assert timed_harness.counts() == {"acked": 3}


def test_lost_lease_is_said_once(
    timed_harness: QueueHarness, timed_url: str, query: Make, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    timed_harness.number(1)
    one = query(timed_url, leaseSeconds=SHORT)
    one.batch()
    (held,) = timed_harness.leases()
    assert isinstance(one.reader, LeaseReader)
    planned = one.reader._claims._planned
    assert planned is not None
    until(lambda: not planned[1].in_doubt)
    clock.advance(2)
    said = ""

    def told() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return bool(said)

    until(told)
    one.reader.stop()
    said += capsys.readouterr().err
    assert said == f"ackwise: the lease {held.lease_id} is lost; its messages are delivered again\n"


def test_deadline_that_is_later_already_stays(timed_harness: QueueHarness, clock: ManualClock) -> None:
    timed_harness.number(1)
    claimed = timed_harness.do(c.Claim(queue="q", group="g", most=1, lease=100 * MICROS))
    transport = timed_harness.transport
    lease = BatchLease(transport, HeldLeases(), claimed, keyed=True)
    lease.duration, lease.in_doubt = 50 * MICROS, True
    assert extend_all(transport, [lease]) == [None]
    assert not lease.in_doubt
    assert deadline(timed_harness) == lease.deadline == claimed.deadline
