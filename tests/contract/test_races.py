"""Many claimers at once: nobody ever gets a message that somebody else holds."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ackwise.core.messages import NewMessage
from tests.contract.support import Delivery, Desk, counts


def everybody(desk: Desk, **how: Any) -> list[Delivery]:
    """Sixteen threads claim until there is nothing left; what each got."""

    def work(_: int) -> list[Delivery]:
        mine: list[Delivery] = []
        while got := desk.claim(3, **how).deliveries:
            mine += got
        return mine

    with ThreadPoolExecutor(16) as pool:
        return [d for batch in pool.map(work, range(16)) for d in batch]


@pytest.mark.parametrize("lanes", [1, 100])
def test_a_pool_shares_without_overlap(desk: Desk, lanes: int) -> None:
    desk.send([NewMessage(str(i).encode(), partition=f"p{i % lanes}") for i in range(300)])
    got = everybody(desk)
    assert Counter(d.body for d in got) == {str(i): 1 for i in range(300)}
    assert counts(desk.group()) == {"held": 300}


@pytest.mark.parametrize("lanes", [1, 40])
def test_exclusive_claims_hold_a_partition_each(desk: Desk, lanes: int) -> None:
    desk.send([NewMessage(str(i).encode(), partition=f"p{i % lanes}") for i in range(4 * lanes)])
    got = everybody(desk, exclusivity="partition")
    holders: dict[str, set[str]] = {}
    for delivery in got:
        holders.setdefault(delivery.partition, set()).add(delivery.lease_id)
    assert len(holders) == lanes
    assert all(len(leases) == 1 for leases in holders.values())


def test_one_settlement_wins_however_many_ask(desk: Desk) -> None:
    desk.number(20)
    held = desk.claim(20).deliveries

    def settle(number: int) -> list[str]:
        verb = (desk.ack, desk.release, desk.retry, desk.reject)[number % 4]
        return [verb(delivery)[0] for delivery in held]

    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(settle, range(8)))
    for answers in zip(*verdicts, strict=True):
        settled = [v for v in answers if v != "already"]
        assert len(settled) == 1, answers
    stats = desk.group()
    assert stats.acked + stats.dead + stats.held == 20
