"""Leases are kept alive while a batch runs, and no longer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ackwise.core import commands as c
from ackwise.core.limits import MICROS
from ackwise.spark.source.renewing import Renewer
from ackwise.store.clock import ManualClock
from tests.spark.source.asking import Query
from tests.spark.stores import Desk, until

Make = Callable[..., Query]
SHORT = 0.06


def deadline(desk: Desk) -> int:
    (held,) = desk.leases()
    return held.deadline


def test_a_batch_may_take_longer_than_its_lease(
    timed_desk: Desk, timed_url: str, query: Make, clock: ManualClock
) -> None:
    timed_desk.number(3)
    one = query(timed_url, leaseSeconds=SHORT)
    rows = one.batch()
    for _ in range(10):
        clock.advance(SHORT * 0.9)
        until(lambda: deadline(timed_desk) == clock.now() + round(SHORT * MICROS))
    assert timed_desk.settle(rows) == ["acked"] * 3


def test_a_claim_that_was_planned_anew_after_a_restart_is_renewed(
    timed_desk: Desk, timed_url: str, query: Make, clock: ManualClock
) -> None:
    timed_desk.number(3)
    first = query(timed_url, leaseSeconds=SHORT)
    first.batch()
    again = query(timed_url, first.log, leaseSeconds=SHORT)
    rows = again.rows()
    for _ in range(5):
        clock.advance(SHORT * 0.9)
        until(lambda: deadline(timed_desk) == clock.now() + round(SHORT * MICROS))
    assert timed_desk.settle(rows) == ["acked"] * 3


def test_what_is_finished_is_not_renewed(timed_desk: Desk, timed_url: str, query: Make, clock: ManualClock) -> None:
    """A claim that a committed batch left behind must not be held for ever."""
    timed_desk.number(3)
    one = query(timed_url, leaseSeconds=SHORT)
    one.batch()
    assert not one.plan()
    assert timed_desk.leases() == []
    assert timed_desk.counts() == {"acked": 3}


def test_a_lost_lease_is_said_once(
    timed_desk: Desk, timed_url: str, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    timed_desk.number(1)
    claimed = timed_desk.do(c.Claim(queue="q", group="g", most=1, lease=MICROS))
    renewer = Renewer(timed_desk.transport, round(SHORT * MICROS))
    said = ""
    try:
        renewer.keep(claimed.lease_id)
        clock.advance(2)

        def told() -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return bool(said)

        until(told)
        assert renewer._lease_id is None
    finally:
        renewer.close()
    assert said == f"ackwise: the lease {claimed.lease_id} was lost; its messages will come again\n"


def test_a_deadline_that_is_later_already_stays(timed_desk: Desk, clock: ManualClock) -> None:
    timed_desk.number(1)
    claimed = timed_desk.do(c.Claim(queue="q", group="g", most=1, lease=100 * MICROS))
    renewer = Renewer(timed_desk.transport, 50 * MICROS)
    try:
        renewer.keep(claimed.lease_id, now=True)
        until(lambda: not renewer._at_once)
    finally:
        renewer.close()
    assert deadline(timed_desk) == claimed.deadline
